"""The ledger: what is noted is undone, whoever does it; what is not ours stays."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from localcluster import ledger, network, reaper, system
from localcluster.identity import alive, identity
from localcluster.ledger import TAG, Ledger, TeardownError, entries, kill_tagged, sweep, undo
from localcluster.paths import run_directory
from localcluster.system import MachineError, require_node

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
# Starts a child of its own, and waits for it.
PARENT = [sys.executable, "-c", f"import subprocess; subprocess.run({SLEEP!r})"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_undo_kills_tagged_processes_and_their_children() -> None:
    ours = Ledger()
    parent = subprocess.Popen(PARENT, env=ours.environment, start_new_session=True)
    bystander = subprocess.Popen(SLEEP, env={**os.environ, TAG: "other"})
    try:
        ours.undo()
        assert parent.wait(5) == -9
        assert ledger._tagged(ours.id) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_undo_removes_what_was_noted_and_what_was_never_made(tmp_path: Path) -> None:
    ours = Ledger()
    tree, file = tmp_path / "tree", tmp_path / "file"
    for kind, path in (("tree", tree), ("file", file), ("tree", tmp_path / "never-made")):
        ours.note(kind, str(path))  # type: ignore[arg-type]
    (tree / "deep").mkdir(parents=True)
    file.touch()
    ours.undo()
    assert not tree.exists()
    assert not file.exists()
    assert not ours.path.exists()


def test_line_cut_short_by_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    ours = Ledger()
    tree = tmp_path / "tree"
    tree.mkdir()
    ours.note("tree", str(tree))
    with ours.path.open("a") as file:
        file.write('{"tree": "/ho')
    ours.undo()
    assert not tree.exists()


def test_tree_with_a_mount_in_it_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Ledger()
    precious = tmp_path / "tree" / "mounted" / "precious"
    precious.parent.mkdir(parents=True)
    precious.touch()
    ours.note("tree", str(tmp_path / "tree"))
    monkeypatch.setattr(ledger, "_mount_points", lambda: [precious.parent])
    with pytest.raises(TeardownError, match=r"still mounted: .*mounted"):
        ours.undo()
    assert precious.exists()
    assert ours.path.exists()  # to be tried again
    monkeypatch.undo()
    undo(ours.path)
    reaper.unwatch(ours.id)


def test_sweep_takes_the_dead_only(tmp_path: Path) -> None:
    living = Ledger()
    process = subprocess.Popen(SLEEP)
    owner = identity(process.pid)
    (run_directory() / "aaaaaa.jsonl").write_text(f'{{"owner": "{owner}"}}\n')
    assert sweep() == []
    process.kill()
    process.wait()
    assert sweep() == ["aaaaaa"]
    assert entries(living.path)
    living.undo()


def test_identity_outlives_the_id() -> None:
    own = identity(os.getpid())
    assert alive(own)
    assert not alive(own + "0")  # the same id, started at another time
    with pytest.raises(ProcessLookupError, match="no process 4194304"):
        identity(4194304)  # above the largest id that Linux gives


def test_nothing_to_kill_is_fine() -> None:
    kill_tagged("no-such-tag")


def test_block_avoids_routes_and_other_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = ["10.0.0.0/8", "172.16.0.0/13", "172.24.0.0/14", "172.28.0.0/15", "172.30.0.0/16"]
    routes.append("192.168.0.0/16")
    monkeypatch.setattr(network, "_routes", lambda: [IPv4Network(r) for r in routes])
    ours = Ledger()
    try:
        taken = [network.reserve(ours).block for _ in range(16)]
        assert len(set(taken)) == 16
        assert all(block.subnet_of(IPv4Network("172.31.0.0/16")) for block in taken)
        with pytest.raises(OSError, match="every private address block"):
            network.reserve(ours)
    finally:
        ours.undo()


def test_addresses_of_a_cluster_do_not_overlap() -> None:
    cluster = network.ClusterNetwork(IPv4Network("10.1.16.0/20"))
    nodes = [cluster.node(index) for index in range(network.MAX_NODES)]
    parts = [cluster.services, *(n.link for n in nodes), *(n.pods for n in nodes)]
    assert str(cluster.api_service) == "10.1.16.1"
    assert all(part.subnet_of(cluster.block) for part in parts)
    assert not any(a.overlaps(b) for i, a in enumerate(parts) for b in parts[:i])
    with pytest.raises(ValueError, match="at most 14 nodes"):
        cluster.node(network.MAX_NODES)


def test_routes_are_read_as_the_kernel_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    monkeypatch.setattr(network, "ROUTES", table)
    assert network._routes() == [IPv4Network("192.0.2.0/24")]


def test_missing_packages_are_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MachineError) as caught:
        require_node()
    assert "a node needs root" in str(caught.value)
    assert "apt-get install --yes buildah containerd" in str(caught.value)
    with pytest.raises(MachineError, match="as root on Debian: apt-get install --yes buildah"):
        system.install_packages()
