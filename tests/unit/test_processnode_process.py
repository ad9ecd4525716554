"""Real processes below the shim, and the addresses of pods: nothing is left, whoever is killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster.processnode.addresses import AddressPool
from localcluster.processnode.errors import AddressesExhaustedError
from localcluster.processnode.probes import CheckResult, make_check
from localcluster.processnode.process import Exit, Launch, Process

ENVIRONMENT = {"PATH": os.environ["PATH"]}
PATIENCE = 20.0


def launch(directory: Path, script: str) -> Launch:
    return Launch(["sh", "-c", script], ENVIRONMENT, str(directory), str(directory / "log"))


def run(directory: Path, script: str) -> Exit | None:
    process = Process(launch(directory, script))
    try:
        return process.wait(PATIENCE)
    finally:
        process.close()


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs (one that is only waiting to be reaped does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def family(directory: Path) -> tuple[Process, list[int]]:
    """A process with a child and a daemon in a session of its own; the process ids of all."""
    script = (
        "sleep 1000 & echo $! > child; setsid sh -c 'echo $$ > daemon; exec sleep 1000' &"
        " echo $$ > main; wait"
    )
    process = Process(launch(directory, script))
    names = ("main", "child", "daemon")
    assert eventually(
        lambda: all((directory / n).exists() and (directory / n).read_text() for n in names)
    )
    pids = [int((directory / name).read_text()) for name in names]
    assert all(alive(pid) for pid in pids)
    return process, pids


def test_exit_code_output_and_directory(tmp_path: Path) -> None:
    assert run(tmp_path, "pwd; echo two >&2; exit 3") == Exit(3)
    assert (tmp_path / "log").read_text() == f"{tmp_path}\ntwo\n"


def test_only_the_given_environment_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_NODE", "secret")
    assert run(tmp_path, 'test -z "$OF_THE_NODE"') == Exit(0)


def test_death_by_a_signal(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -KILL $$") == Exit(137)


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    process = Process(Launch(["no-such-program"], ENVIRONMENT, "/", str(tmp_path / "log")))
    ended = process.wait(PATIENCE)
    process.close()
    assert ended is not None
    assert ended.code == 128
    assert "no-such-program" in str(ended.error)
    assert process.pid is None


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    process = Process(launch(tmp_path, "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"))
    assert eventually(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text() != "")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == Exit(7)
    process.close()


def test_when_the_command_ends_its_descendants_do(tmp_path: Path) -> None:
    process, pids = family(tmp_path)
    os.kill(pids[0], signal.SIGTERM)
    assert process.wait(PATIENCE) == Exit(143)
    assert not any(alive(pid) for pid in pids)
    process.close()


def test_close_kills_the_whole_family(tmp_path: Path) -> None:
    process, pids = family(tmp_path)
    process.close()
    assert not any(alive(pid) for pid in pids)
    assert process.exit == Exit(137)


def test_killing_the_shim_kills_the_command_and_is_noticed(tmp_path: Path) -> None:
    process = Process(launch(tmp_path, "exec sleep 1000"))
    process.wait_started(PATIENCE)
    pid = process.pid
    assert pid is not None
    os.kill(process._shim.pid, signal.SIGKILL)
    ended = process.wait(PATIENCE)
    assert ended is not None
    assert ended.code == 137
    assert eventually(lambda: not alive(pid))
    process.close()


def test_killing_the_node_kills_the_family(tmp_path: Path) -> None:
    """The node is played by a program that starts a process and is killed with -9."""
    script = f"""
import time
from pathlib import Path
from localcluster.processnode.process import Launch, Process
command = "sleep 1000 & echo $! > child; echo $$ > main; wait"
process = Process(Launch(["sh", "-c", command], {ENVIRONMENT!r}, {str(tmp_path)!r}, "/dev/null"))
time.sleep(1000)
"""
    node = subprocess.Popen([sys.executable, "-c", script], env=os.environ | _path())
    names = [tmp_path / "child", tmp_path / "main"]
    assert eventually(lambda: all(name.exists() and name.read_text() for name in names))
    pids = [int(name.read_text()) for name in names]
    node.kill()
    node.wait()
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_identities_tell_processes_apart(tmp_path: Path) -> None:
    processes = [Process(launch(tmp_path, "exec sleep 1000")) for _ in range(2)]
    for process in processes:
        process.wait_started(PATIENCE)
    assert len({process.identity for process in processes}) == 2
    for process in processes:
        process.close()


@pytest.mark.parametrize(
    ("command", "timeout", "expected"),
    [
        (["true"], 20, CheckResult(True, "")),
        (["sh", "-c", "echo broken; exit 1"], 20, CheckResult(False, "broken\n")),
        (["sleep", "1000"], 1, CheckResult(False, "command timed out after 1 s")),
    ],
)
def test_exec_probes(
    tmp_path: Path, command: list[str], timeout: int, expected: CheckResult
) -> None:
    spec = {"exec": {"command": command}, "timeoutSeconds": timeout}
    assert make_check(spec, {}, "127.0.0.1", launch(tmp_path, ""))() == expected


def test_network_probes_follow_the_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        container = {"ports": [{"name": "http", "containerPort": port}]}
        tcp = make_check(
            {"tcpSocket": {"port": "http"}}, container, "127.0.0.1", launch(tmp_path, "")
        )
        http = make_check(
            {"httpGet": {"port": port}, "timeoutSeconds": 1}, {}, "127.0.0.1", launch(tmp_path, "")
        )
        assert tcp().passed
        assert not http().passed, "nobody answers"
    assert not tcp().passed


def test_a_probe_of_an_unknown_port_name_fails(tmp_path: Path) -> None:
    check = make_check({"tcpSocket": {"port": "nope"}}, {}, "127.0.0.1", launch(tmp_path, ""))
    assert not check().passed


def test_addresses_are_loopback_and_not_given_twice_even_by_two_pools() -> None:
    seed = 5
    first, second = AddressPool(random.Random(seed)), AddressPool(random.Random(seed))
    one, other = first.acquire([]), second.acquire([])
    assert one != other
    assert {one.split(".")[0], other.split(".")[0]} == {"127"}
    first.release(one)
    assert AddressPool(random.Random(seed)).acquire([]) == one
    second.release(other)


def test_an_address_has_the_wanted_ports_free() -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        with pytest.raises(AddressesExhaustedError, match=rf"ports \[{port}\] free"):
            AddressPool().acquire([port])


def _path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
