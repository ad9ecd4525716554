"""Both images as they are built: who they run as, what they hold, and what they do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune.wiring import Wiring, wire

from localcluster.images import Image
from tests.support.images import ROOT, operator_image, plugin_image

USER = "65532:65532"
# What an image that only runs has no use for, and an intruder has.
UNWANTED = {
    *("apt", "apt-get", "as", "bash", "busybox", "c++", "cc", "clang", "curl", "dash", "dpkg"),
    *("g++", "gcc", "ld", "make", "perl", "pip", "pip3", "sh", "wget"),
}
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat-8b}
spec: {template: {spec: {containers: [{name: vllm, image: vllm/vllm-openai}]}}}
"""

Object = dict[str, Any]


@dataclass(frozen=True)
class Unpacked:
    """An image's configuration, and its root file system in a directory."""

    configuration: Object
    root: Path

    def run(self, *command: str, volume: Path | None = None) -> str:
        """Run a program of it as its user, with its environment, on a root that is read-only.

        A volume is mounted at /evictune-plugin, as the pods that are wired have it.
        """
        script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"'
        if volume is not None:
            (self.root / "evictune-plugin").mkdir(exist_ok=True)
            script += f' && mount --bind {volume} "$0/evictune-plugin"'
        enter = f'{script} && user=$1 && shift && exec chroot --userspec="$user" "$0" "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "--net", "sh", "-c", enter, str(self.root), USER, *command],
            env=dict(each.split("=", 1) for each in self.configuration["config"]["Env"])
            | {"PATH": SYSTEM_PATH},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def files(self) -> Iterator[Path]:
        """Its files, as paths of the image."""
        for path in self.root.rglob("*"):
            if path.is_file() or path.is_symlink():
                yield Path("/") / path.relative_to(self.root)

    def size(self) -> int:
        """Bytes of its files."""
        found = (path.lstat() for path in self.root.rglob("*") if not path.is_dir())
        return sum(each.st_size for each in found)


def unpack(image: Image, directory: Path) -> Unpacked:
    """The layers of an archive on top of each other; a layer of ours deletes nothing."""
    with tarfile.open(image.archive) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        configuration = json.load(archive.extractfile(manifest[0]["Config"]))  # type: ignore[arg-type]
        for name in manifest[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                layer.extractall(directory, filter="tar")
    return Unpacked(configuration, directory)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Unpacked]:
    """Both, built if these sources never were (root)."""
    found = {}
    for name, image in (("operator", operator_image()), ("plugin", plugin_image())):
        directory = tmp_path_factory.mktemp(name)
        directory.chmod(0o755)  # it becomes the root of the image's user
        found[name] = unpack(image, directory)
    return found


@pytest.mark.parametrize("name", ["operator", "plugin"])
def test_it_runs_as_nobody_and_says_what_it_is(images: dict[str, Unpacked], name: str) -> None:
    configuration = images[name].configuration["config"]
    assert configuration["User"] == USER
    labels = configuration["Labels"]
    title = {"operator": "evictune", "plugin": "evictune-plugin"}[name]
    assert labels["org.opencontainers.image.title"] == title
    assert labels["org.opencontainers.image.version"] == chart_version()
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def chart_version() -> str:
    """The version of the application, as the chart has it."""
    return str(yaml.safe_load((ROOT / "charts/evictune/Chart.yaml").read_text())["appVersion"])


@pytest.mark.parametrize("name", ["operator", "plugin"])
def test_it_holds_nothing_to_build_or_install_with(images: dict[str, Unpacked], name: str) -> None:
    files = set(images[name].files())
    assert not UNWANTED & {path.name for path in files if path.parent.name in ("bin", "sbin")}
    assert not [path for path in files if {"pip", "ensurepip", "setuptools"} & set(path.parts)]
    assert not [path for path in files if path.suffix in (".a", ".h")]
    assert not [path for path in files if path.is_relative_to("/var/lib/dpkg")]


@pytest.mark.parametrize(
    ("name", "image"), [("operator", "evictune"), ("plugin", "evictune-plugin")]
)
def test_it_is_as_large_as_stated(images: dict[str, Unpacked], name: str, image: str) -> None:
    page = (ROOT / "docs/how-to/install.md").read_text()
    row = re.search(rf"^\| `{image}` \|.*\| ([0-9.]+) MB \|$", page, re.MULTILINE)
    assert row is not None
    assert images[name].size() / 1e6 == pytest.approx(float(row[1]), rel=0.1)


@pytest.mark.parametrize("name", ["operator", "plugin"])
def test_nobody_may_write_to_it(images: dict[str, Unpacked], name: str) -> None:
    for path in images[name].root.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            assert not mode & 0o022, path
            assert not mode & 0o6000, path
            assert mode & 0o004, path


def test_the_operator_runs_on_a_read_only_root(images: dict[str, Unpacked]) -> None:
    operator = images["operator"]
    assert operator.configuration["config"]["Entrypoint"] == ["evictune"]
    command = "/opt/evictune/venv/bin/evictune"
    definition = yaml.safe_load(operator.run(command, "crd"))
    assert definition["metadata"]["name"] == "evictionpolicies.evictune.io"
    python = "/opt/evictune/venv/bin/python3"
    # All that `evictune run` loads, whom TLS trusts, and a name for the user.
    loaded = "import evictune.run, getpass, ssl; ssl.create_default_context(); "
    trusted = "print(getpass.getuser(), ssl.get_default_verify_paths().cafile)"
    said = operator.run(python, "-c", loaded + trusted)
    assert said == "evictune /etc/ssl/certs/ca-certificates.crt\n"
    # Nothing can be compiled when it runs.
    compiled = "import evictune, json; print(evictune.__cached__, json.__cached__)"
    for file in operator.run(python, "-c", compiled).split():
        assert (operator.root / file.removeprefix("/")).is_file()


def test_the_plugin_is_copied_as_the_init_container_copies_it(
    images: dict[str, Unpacked], tmp_path: Path
) -> None:
    plugin = images["plugin"]
    wired = yaml.safe_load(wire(WORKLOAD, Wiring("plugin")))
    (copier,) = wired["spec"]["template"]["spec"]["initContainers"]
    cp, *arguments = copier["command"]
    configuration = plugin.configuration["config"]
    assert [cp, *arguments] == configuration["Entrypoint"] + configuration["Cmd"]
    tmp_path.chmod(0o777)  # as the volume of a pod is
    plugin.run(f"/bin/{cp}", *arguments, volume=tmp_path)
    asked = "import importlib.metadata as m; print(m.entry_points(group='vllm.general_plugins'))"
    # -S: without what this environment has installed.
    done = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "evictune_policies.engine:register" in done.stdout
    assert (tmp_path / "evictune_policies/engine/__init__.py").is_file()
    assert not (tmp_path / "bin").exists()
