"""What clusters leave on this machine: looked for in the kernel's own lists."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localcluster.ledger import TAG
from localcluster.paths import run_directory


def traces_of(ledger_id: str) -> list[str]:
    """Everything on the machine that belongs to the cluster or node with this ledger id."""
    found = [f"process {pid}" for pid in _processes_of(ledger_id)]
    found += [f"mount {line}" for line in _mounts() if ledger_id in line]
    found += [f"link {name}" for name in _names(Path("/sys/class/net")) if ledger_id in name]
    found += [f"cgroup {path}" for path in _cgroups() if ledger_id in Path(path).name]
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(f"*{ledger_id}*")]
    found += [str(path) for path in run_directory().glob(f"*{ledger_id}*")]
    return found


@dataclass(frozen=True)
class Surroundings:
    """What a cluster could leave without its id on it."""

    mounts: frozenset[str]
    links: frozenset[str]
    namespaces: frozenset[str]
    settings: frozenset[str]

    @classmethod
    def now(cls) -> Surroundings:
        """The mounts, links, named network namespaces and kernel settings of this moment."""
        settings = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic"]
        settings += ["kernel/panic_on_oops", "net/ipv4/ip_forward"]
        return cls(
            mounts=frozenset(_mounts()),
            # The links of clusters that others run at the same time come and go.
            links=frozenset(n for n in _names(Path("/sys/class/net")) if not n.startswith("ev")),
            namespaces=frozenset(_names(Path("/run/netns"))),
            settings=frozenset(
                f"{name}={Path('/proc/sys', name).read_text().strip()}" for name in settings
            ),
        )


def _processes_of(ledger_id: str) -> list[int]:
    """Processes with the tag, and those in a container of the node, which have no tag."""
    tag = f"{TAG}={ledger_id}".encode()
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit()
        and (tag in _read(path / "environ") or ledger_id.encode() in _read(path / "cgroup"))
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended while we looked
        return b""


def _cgroups() -> Iterator[str]:
    """All control groups, but those that vanish while we look."""
    return (directory for directory, _, _ in os.walk("/sys/fs/cgroup"))


def _mounts() -> list[str]:
    return Path("/proc/self/mounts").read_text().splitlines()


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()] if directory.exists() else []
