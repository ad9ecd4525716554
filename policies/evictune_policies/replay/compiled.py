"""Compiles the plain functions of `algorithms` and `simulation` with numba, and keeps the results.

The functions stay plain: they can be read, stepped through and tested without a compiler. Which of
a policy's operations a compiled loop calls is settled by the type of the policy's state, when the
loop is compiled.

What was compiled is kept in `${XDG_CACHE_HOME:-~/.cache}/evictune/compiled-DIGEST`. The digest is
that of all sources that can be compiled in, because numba itself only looks at one file. Where it
cannot be written (a read-only file system, a user without a home), nothing is kept, and that is
logged.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import pkgutil
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import evictune_policies.algorithms

HERE = Path(__file__).parent
KEPT_DAYS = 30


Function = TypeVar("Function", bound=Callable[..., Any])


def cache_directory() -> Path:
    """Where compiled code is kept: another place for other sources."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    directories = (Path(evictune_policies.algorithms.__path__[0]), HERE / "simulation", HERE)
    for source in (each for directory in directories for each in sorted(directory.glob("*.py"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return base / "evictune" / f"compiled-{digest.hexdigest()[:12]}"


def _remove_outdated(ours: Path) -> None:
    """What other releases compiled long ago; one that still runs compiles it anew."""
    oldest = time.time() - KEPT_DAYS * 86400
    for each in ours.parent.glob("compiled-*"):
        # Another process may remove it at the same time.
        with suppress(FileNotFoundError):
            if each != ours and each.stat().st_mtime < oldest:
                shutil.rmtree(each, ignore_errors=True)


def _can_keep() -> bool:
    """Whether what is compiled can be kept; if so, numba is told where."""
    place = "~/.cache"
    try:
        chosen = os.environ.get("NUMBA_CACHE_DIR")
        if not chosen:
            ours = cache_directory()
            _remove_outdated(ours)
            chosen = str(ours)
        place = chosen
        Path(place).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            os.environ["NUMBA_CACHE_DIR"] = place
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        logging.getLogger(__name__).warning(
            "%s: cannot be written (%s), so each run compiles anew; set XDG_CACHE_HOME to a "
            "directory that can be written",
            place,
            getattr(error, "strerror", None) or error,
        )
        return False
    return True


KEEP = _can_keep()  # before numba is imported, which reads it

import numba  # noqa: E402
from numba.extending import overload, register_jitable  # noqa: E402

from evictune_policies.algorithms import operations  # noqa: E402
from evictune_policies.replay import mechanics  # noqa: E402


def compiled(function: Function, *using: ModuleType, allocates: bool = False) -> Function:
    """The compiled form of a plain function: same arguments, same result.

    It may call the plain functions of `algorithms`, `mechanics`, its own module and those it uses.
    All but the last are inlined, and nobody counts references to arrays: together that makes a
    replay ten times as fast. Hence neither they nor the function may make an array (NumPy's or a
    slice); a function that calls no others may, if it says so by `allocates`.
    """
    for module in using:
        _register(module, inline=False)
    _register(sys.modules[function.__module__])
    dispatcher: Function = numba.njit(cache=KEEP, nogil=True, _nrt=allocates)(function)
    return dispatcher


_PART = {"_nrt": False, "forceinline": True, "no_cfunc_wrapper": True}


@cache
def _register(module: ModuleType, inline: bool = True) -> None:
    """Let compiled code call a module's plain functions."""
    dispatched = operations.Operations._fields if module is operations else ()
    for name, function in vars(module).items():
        own = isinstance(function, FunctionType) and function.__module__ == module.__name__
        if own and name not in dispatched:
            register_jitable(**{**_PART, "forceinline": inline})(function)


def _register_algorithms() -> None:
    for info in pkgutil.iter_modules(evictune_policies.algorithms.__path__):
        name = f"{evictune_policies.algorithms.__name__}.{info.name}"
        _register(importlib.import_module(name))


_by_state: Callable[[Any], Callable[[Function], Function]] = partial(
    overload, strict=False, jit_options=_PART
)

# The parameters' names have to be those of the plain functions.


@_by_state(operations.start)
def _start(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].start


@_by_state(operations.hit)
def _hit(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].hit


@_by_state(operations.free)
def _free(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].free


@_by_state(operations.leave)
def _leave(state: Any, pool: Any, block: Any, visit: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].leave


@_by_state(operations.victim)
def _victim(state: Any, pool: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].victim


@_by_state(operations.expired)
def _expired(state: Any, pool: Any, now: Any) -> Callable[..., Any]:
    return operations.IMPLEMENTATIONS[state.instance_class].expired


_register_algorithms()
_register(mechanics)
