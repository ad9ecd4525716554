"""Who a process is, beyond its id: ids are used again, also after a reboot."""

from __future__ import annotations

from pathlib import Path


def identity(pid: int) -> str:
    """`BOOT:PID:START` of a live process: no other process ever has the same.

    Raises ProcessLookupError if there is no such process. START is in clock ticks since boot
    (proc(5), field 22 of stat).
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}") from None
    # The name (field 2) is in parentheses and may hold spaces.
    state, *rest = stat.rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return f"{boot}:{pid}:{rest[18]}"


def alive(known: str) -> bool:
    """Whether the process that `identity` once described still runs."""
    pid = int(known.split(":")[1])
    try:
        return identity(pid) == known
    except ProcessLookupError:
        return False
