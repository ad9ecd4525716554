"""What `Node` needs of the machine: Linux, root, and some Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

CNI_PLUGINS = Path("/usr/lib/cni")

# What is looked for, and the Debian package that has it.
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    str(CNI_PLUGINS / "host-local"): "containernetworking-plugins",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}


class MachineError(RuntimeError):
    """This machine cannot run a node as it is; the message says what to do."""


def missing_packages() -> list[str]:
    """The Debian packages that a node needs and this machine does not have."""
    return sorted({package for name, package in NEEDED.items() if not _present(name)})


def require_node() -> None:
    """Raise MachineError, naming every reason and its remedy, if no node can run here."""
    problems = []
    if sys.platform != "linux":
        problems.append(f"a node needs Linux, this is {sys.platform}")
    elif os.geteuid() != 0:
        problems.append("a node needs root (namespaces, mounts, cgroups): run it with sudo")
    if missing := missing_packages():
        problems.append(f"missing programs: apt-get install --yes {' '.join(missing)}")
    if problems:
        raise MachineError("; ".join(problems))


def install_packages(also: Iterable[str] = ()) -> list[str]:
    """Install the missing packages by apt-get, as root. Returns their names.

    `also`: programs that something else needs, each in a Debian package of its own name.
    """
    missing = [*missing_packages(), *(name for name in also if not _present(name))]
    if not missing:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MachineError(f"as root on Debian: apt-get install --yes {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    for command in (["apt-get", "update"], install):
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise MachineError(f"{' '.join(command)} failed")
    return missing


def _present(name: str) -> bool:
    return Path(name).exists() if name.startswith("/") else shutil.which(name) is not None
