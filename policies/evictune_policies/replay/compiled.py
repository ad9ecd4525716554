"""Compiles the plain functions of `algorithms` and `replay` with numba, and keeps the results.

The functions stay plain: they can be read, stepped through and tested without a compiler. Which of
a policy's operations a compiled loop calls is settled by the type of the policy's state, when the
loop is compiled.

What was compiled is kept in `${XDG_CACHE_HOME:-~/.cache}/evictune/compiled-DIGEST`. The digest is
that of all sources that can be compiled in, because numba itself only looks at one file.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import evictune_policies.algorithms
import evictune_policies.replay

PACKAGES = (evictune_policies.algorithms, evictune_policies.replay)

Function = TypeVar("Function", bound=Callable[..., Any])


def cache_directory() -> Path:
    """Where compiled code is kept: another place for other sources."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for package in PACKAGES:
        for source in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return base / "evictune" / f"compiled-{digest.hexdigest()[:12]}"


os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory()))  # read when numba is imported

import numba  # noqa: E402
from numba.extending import overload, register_jitable  # noqa: E402

from evictune_policies.algorithms import operations  # noqa: E402


def compiled(function: Function) -> Function:
    """The compiled form of a plain function: same arguments, same result."""
    dispatcher: Function = numba.njit(cache=True, nogil=True)(function)
    return dispatcher


def _register_algorithms() -> None:
    """Let compiled code call every plain function of `algorithms`."""
    dispatched = set(operations.Operations._fields)
    for info in pkgutil.iter_modules(evictune_policies.algorithms.__path__):
        module = importlib.import_module(f"{evictune_policies.algorithms.__name__}.{info.name}")
        for name, function in vars(module).items():
            if not isinstance(function, FunctionType) or function.__module__ != module.__name__:
                continue
            if module is not operations or name not in dispatched:
                register_jitable(function)


# The parameters' names have to be those of the plain functions.


@overload(operations.start, strict=False)
def _start(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].start


@overload(operations.hit, strict=False)
def _hit(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].hit


@overload(operations.free, strict=False)
def _free(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].free


@overload(operations.leave, strict=False)
def _leave(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].leave


@overload(operations.victim, strict=False)
def _victim(state: Any, pool: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].victim


@overload(operations.expired, strict=False)
def _expired(state: Any, pool: Any, now: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].expired


_register_algorithms()
