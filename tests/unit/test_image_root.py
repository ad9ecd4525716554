"""Root file systems of a few programs: what an image is made of (see Dockerfile)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import image_root


def test_links_on_the_way_are_made_again(tmp_path: Path) -> None:
    """As /lib -> usr/lib in Debian, and libc.so -> libc.so.6 in it."""
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "usr/lib").mkdir(parents=True)
    (source / "usr/lib/libx.so.1").write_text("x")
    (source / "usr/lib/libx.so").symlink_to("libx.so.1")
    (source / "lib").symlink_to("usr/lib")
    (source / "etc").symlink_to("./usr/../lib/")
    for path in ("lib/libx.so", "etc/libx.so"):
        image_root.add(source / path, root)
        image_root.add(source / path, root)  # what is there already is no fault
    copied = root / source.relative_to("/")
    assert {path.relative_to(copied).as_posix() for path in copied.rglob("*")} == {
        *("etc", "lib", "usr", "usr/lib", "usr/lib/libx.so", "usr/lib/libx.so.1")
    }
    assert (copied / "etc/libx.so").read_text() == "x"


def test_a_tree_comes_without_what_is_left_out(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    for name in ("json/tool.py", "ensurepip/pip.whl", "test/test_json.py", "config-3.11-x/lib.a"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("")
    image_root.add(source, root, image_root.LEFT_OUT)
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["tool.py"]


def test_a_program_runs_with_nothing_but_what_was_copied(tmp_path: Path) -> None:
    program = Path(shutil.which("cp") or "")
    assert image_root.main([str(tmp_path), str(program)]) == 0
    loader = next(tmp_path.rglob("ld-linux*"))
    libraries = {str(path.parent) for path in tmp_path.rglob("*.so*")}
    copied = tmp_path / program.relative_to("/")
    command = [str(loader), "--inhibit-cache", "--library-path", ":".join(libraries), str(copied)]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    maps = subprocess.run([*command[:-1], "--list", str(copied)], capture_output=True, text=True)
    outside = [line for line in maps.stdout.splitlines() if "=> /" in line]
    assert outside
    assert all(f"=> {tmp_path}/" in line for line in outside)


def test_a_library_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    shutil.copy(sys.executable, tmp_path / "root/program")
    (tmp_path / "ldd").write_text("#!/bin/sh\necho '  libgone.so.1 => not found'\nexit 1\n")
    (tmp_path / "ldd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(image_root.MissingError, match=r"libgone\.so\.1"):
        image_root.add_libraries(tmp_path / "root")
