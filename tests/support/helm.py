"""Helm as a user runs it, in each of the versions that the chart is made for."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster.binaries import ensure
from localcluster.controlplane import ControlPlane

CHART = Path(__file__).resolve().parents[2] / "charts/evictune"
HELMS = ("helm", "helm4")
_PROGRAM: ContextVar[str] = ContextVar("_PROGRAM", default=HELMS[0])


class HelmError(ValueError):
    """What Helm wrote to standard error when it failed."""


@pytest.fixture(params=HELMS)
def each_helm(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once with each version; its name among localcluster's programs."""
    before = _PROGRAM.set(request.param)
    yield request.param
    _PROGRAM.reset(before)


def helm(
    *arguments: str,
    values: Mapping[str, Any] | None = None,
    cluster: ControlPlane | None = None,
    seconds: float = 120.0,
) -> str:
    """What Helm prints. With `values` these are given to it. Raises HelmError."""
    command = [str(ensure(_PROGRAM.get())), *arguments]
    if values is not None:
        command += ["--values", "-"]
    if cluster is not None:
        command += ["--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(
        command,
        input=yaml.safe_dump(dict(values or {})),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if done.returncode != 0:
        raise HelmError(done.stderr + done.stdout)
    return done.stdout
