"""Process 1 of a node's namespaces: prepares them, then reaps orphans until it is killed.

`Node` starts it by `unshare` in a mount, process id and network namespace of its own. When it is
killed the kernel kills everything inside (kubelet, containerd, its shims, all containers) and with
the last process go the mounts and the network interfaces. Nothing of a node can outlive it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

# kubelet sets these for the whole machine unless they already are so. It finds them so in its
# mount namespace, by files mounted over them, and the machine keeps its own.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def prepare(directory: Path) -> None:
    """Mounts and network settings of a node whose files are in `directory`."""
    # containerd and CNI keep sockets and namespaces at fixed places in /run.
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    Path("/run/netns").mkdir()
    _cover(Path("/var/log"), directory / "var-log")
    _cover(Path("/var/lib/cni"), directory / "var-lib-cni")
    for name, value in KERNEL_SETTINGS.items():
        fake = Path("/run") / name.replace("/", ".")
        fake.write_text(value + "\n")
        _run("mount", "--bind", str(fake), f"/proc/sys/{name}")
    _run("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _cover(place: Path, directory: Path) -> None:
    """Mount `directory` over `place`, so that what is written there stays with the node."""
    directory.mkdir()
    place.mkdir(parents=True, exist_ok=True)
    _run("mount", "--bind", str(directory), str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    """Prepare, make the file `ready`, and wait for ever; ended children leave no zombies."""
    directory = Path(sys.argv[1])
    prepare(directory)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children at once
    (directory / "ready").touch()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
