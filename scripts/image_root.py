"""`python3 scripts/image_root.py [--python] ROOT PATH...`: a root file system of the PATHs alone.

Run while an image is built (see Dockerfile). Each path is copied to the same place under ROOT, with
the shared libraries that its programs load, and with the links that lead to it. --python adds this
interpreter and its standard library, compiled, since an image is read-only when it runs. What is
left out cannot be attacked and needs no update: shell, package manager, compiler, pip.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

ELF = b"\x7fELF"
# Of the standard library: what installs, builds or tests software, and what draws windows.
LEFT_OUT = (
    *("config-*", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *("site-packages", "sitecustomize.py", "test", "tkinter", "turtle.py", "turtledemo", "venv"),
    *("__pycache__", "_ctypes_test.*", "_test*.so", "_tkinter.*", "_xxtestfuzz.*", "xxlimited*"),
)
# Of every tree: what only a compiler reads.
TO_BUILD_WITH = ("*.a", "*.h")
# Where the libraries are looked for, and whom a TLS connection trusts.
SETTINGS = ("/etc/ld.so.cache", "/etc/ssl/certs/ca-certificates.crt", "/usr/lib/ssl/openssl.cnf")
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


class MissingError(RuntimeError):
    """A program could not run in the new root."""


def add(path: Path, root: Path, left_out: Sequence[str] = ()) -> None:
    """Copy a file or a tree, and the links that lead to it."""
    real = _follow(path, root)
    target = root / real.relative_to("/")
    if real.is_dir():
        ignore = shutil.ignore_patterns(*left_out, *TO_BUILD_WITH)
        shutil.copytree(real, target, symlinks=True, dirs_exist_ok=True, ignore=ignore)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(real, target)


def _follow(path: Path, root: Path) -> Path:
    """The path without links; those on the way to it, such as /lib, are made under `root`."""
    real, parts = Path("/"), list(path.parts[1:])
    while parts:
        here = real / parts.pop(0)
        if not here.is_symlink():
            real = here
            continue
        link = root / here.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(here.readlink())
        target = Path(os.path.normpath(real / here.readlink()))
        real, parts = Path("/"), [*target.parts[1:], *parts]
    return real


def add_libraries(root: Path) -> None:
    """The shared libraries that programs under `root` load. Raises MissingError."""
    programs = list(_programs(root))
    # What is linked statically makes ldd fail, and is no fault.
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    missing = [line.strip() for line in done.stdout.splitlines() if "not found" in line]
    if missing:
        raise MissingError(f"libraries that are not there: {', '.join(sorted(set(missing)))}")
    for library in sorted(set(_LIBRARY.findall(done.stdout))):
        if not Path(library).is_relative_to(root):
            add(Path(library), root)


def _programs(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(len(ELF)) == ELF:
                    yield str(path)


def add_python(root: Path) -> None:
    """This interpreter, its standard library, and what it reads at a start."""
    add(Path(sys.executable), root)
    library = Path(sysconfig.get_path("stdlib"))
    add(library, root, LEFT_OUT)
    for name in SETTINGS:
        if Path(name).exists():
            add(Path(name), root)
    compiled = root / library.resolve().relative_to("/")
    compileall.compile_dir(
        compiled,
        quiet=1,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="store_true", help="with this interpreter")
    parser.add_argument("root", metavar="ROOT", type=Path)
    parser.add_argument("paths", metavar="PATH", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    (options.root / "etc").mkdir(parents=True, exist_ok=True)
    for path in options.paths:
        add(path, options.root)
    if options.python:
        add_python(options.root)
    add_libraries(options.root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
