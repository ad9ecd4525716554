"""Two operators and one Lease: one acts, the other waits; a change outlives the one that began it.

Real processes before a real API server. Each has a service account's token of its own, so that the
audit log tells their writes apart.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evictune.election import LEASE_DURATION, RETRY_PERIOD

from localcluster.controlplane import ControlPlane
from tests.support.fake_engines import FakeDeployment
from tests.support.operator_process import OperatorProcess, eventually
from tests.support.operator_scene import Scene, install_crd, policy, wait_exactly
from tests.support.service_account import allow, allow_all, service_account

WHOLE = ["Intended", "Written", "Acknowledged", "Kept"]
# Long enough to kill the leader between the document and its acknowledgement.
MOUNT_DELAY = 4.0


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    install_crd(control_plane)
    return control_plane


@pytest.fixture
def scene(cluster: ControlPlane) -> Iterator[Scene]:
    with Scene(cluster) as made:
        yield made


def operator(scene: Scene, tmp_path: Path, name: str) -> OperatorProcess:
    """An operator with an identity, and a user, of its own; the lease lies in the namespace."""
    kubeconfig = service_account(scene.cluster, scene.namespace, name, tmp_path)
    allow_all(scene.cluster, scene.namespace, name)
    arguments = ("--namespace", scene.namespace)
    lease = {"namespace": scene.namespace}
    return OperatorProcess(
        tmp_path / name, kubeconfig, None, *arguments, identity=name, lease=lease
    )


def leading(process: OperatorProcess) -> bool:
    return process.value("evictune_leading") == 1.0


def holder(scene: Scene) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{scene.namespace}/leases/evictune"
    return str((scene.api.get_or_none(path) or {"spec": {}})["spec"].get("holderIdentity", ""))


def writers(scene: Scene) -> list[str]:
    """Who wrote anything but the Lease into the namespace, in order, without repetitions."""
    found: list[str] = []
    for each in scene.writes():
        name = each["user"]["username"].rpartition(":")[2]
        if each["objectRef"]["resource"] != "leases" and found[-1:] != [name]:
            found.append(name)
    return found


def decision_ids(scene: Scene) -> set[str]:
    decisions: list[dict[str, Any]] = scene.status("chat")["decisions"]
    return {each["decisionID"] for each in decisions if each["reason"] in WHOLE}


def test_of_two_started_together_one_acts_and_the_other_resumes_its_change(
    scene: Scene, tmp_path: Path
) -> None:
    with (
        FakeDeployment(scene.api, scene.namespace, "chat-8b", delay=MOUNT_DELAY) as target,
        operator(scene, tmp_path, "a") as first,
        operator(scene, tmp_path, "b") as second,
    ):
        eventually(lambda: leading(first) or leading(second), "a leader")
        leader, other = (first, second) if leading(first) else (second, first)
        name, successor = ("a", "b") if leader is first else ("b", "a")
        assert holder(scene) == name
        eventually(other.alive, "the follower answers its probe")
        assert not leading(other)
        scene.create(policy("chat", "chat-8b"))
        eventually(lambda: scene.document("chat-8b"), "a knob document")
        leader.kill()
        killed = time.monotonic()
        in_force = scene.document("chat-8b")
        eventually(lambda: leading(other), "a successor", 3 * LEASE_DURATION)
        # The lease was renewed up to RETRY_PERIOD before, and is looked at every RETRY_PERIOD.
        assert time.monotonic() - killed < LEASE_DURATION + 2 * RETRY_PERIOD + 5
        eventually(lambda: scene.reasons("chat") == WHOLE, "one change, kept")
        assert len(decision_ids(scene)) == 1
        assert set(scene.revisions_written("chat-8b")) == {1}
        assert in_force is not None
        assert target.engines[0].values == in_force.values
        assert writers(scene) == [name, successor]


def test_a_clean_stop_gives_the_lease_up_at_once(scene: Scene, tmp_path: Path) -> None:
    with operator(scene, tmp_path, "a") as first:
        eventually(lambda: leading(first), "a leader")
        with operator(scene, tmp_path, "b") as second:
            eventually(lambda: "waiting as b" in second.log.read_text(), "the second one waits")
            first.send(signal.SIGTERM)
            assert first.wait(30) == 0
            stopped = time.monotonic()
            eventually(lambda: leading(second), "a successor", 30)
            assert time.monotonic() - stopped < LEASE_DURATION / 2
    assert "gave up the Lease" in first.log.read_text()
    assert holder(scene) == ""


def test_a_leader_that_was_stopped_for_long_ends_when_it_finds_itself_superseded(
    scene: Scene, tmp_path: Path
) -> None:
    """As on a node that was suspended. What it was about to write is not written."""
    with (
        FakeDeployment(scene.api, scene.namespace, "chat-8b"),
        operator(scene, tmp_path, "a") as first,
    ):
        eventually(lambda: leading(first), "a leader")
        with operator(scene, tmp_path, "b") as second:
            eventually(lambda: "waiting as b" in second.log.read_text(), "the second one waits")
            scene.create(policy("chat", "chat-8b"))
            eventually(lambda: "Kept" in scene.reasons("chat"), "a change that was kept")
            first.send(signal.SIGSTOP)
            eventually(lambda: leading(second), "a successor", 3 * LEASE_DURATION)
            scene.edit("chat", suspend=True)
            generation = scene.get("chat")["metadata"]["generation"]
            eventually(
                lambda: scene.status("chat").get("observedGeneration") == generation, "followed"
            )
            first.send(signal.SIGCONT)
            assert first.wait(60) == 3
            assert "is now held by b" in first.log.read_text()
            wait_exactly(3)
            assert writers(scene) == ["a", "b"]


def test_the_log_tells_of_the_lease_once_and_the_engines_keep_what_is_in_force(
    scene: Scene, tmp_path: Path
) -> None:
    with operator(scene, tmp_path, "a") as first:
        eventually(lambda: leading(first), "a leader")
        wait_exactly(4 * RETRY_PERIOD)
        lines = [line for line in first.log.read_text().splitlines() if "lease" in line.lower()]
        assert len(lines) == 1
        assert "leading: a holds the Lease" in lines[0]


def test_without_rights_on_leases_the_operator_says_so_and_does_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    kubeconfig = service_account(scene.cluster, scene.namespace, "a", tmp_path)
    allow(scene.cluster, scene.namespace, "a", "get,list,watch", "evictionpolicies.evictune.io")
    scene.create(policy("chat", "nowhere"))
    arguments = ("--namespace", scene.namespace)
    lease = {"namespace": scene.namespace}
    with OperatorProcess(tmp_path, kubeconfig, None, *arguments, lease=lease) as process:
        eventually(lambda: "Forbidden" in process.log.read_text(), "the problem told")
        wait_exactly(2 * RETRY_PERIOD)
        told = process.log.read_text()
        assert told.count("Lease cannot be read or written") == 1
        assert 'cannot get resource \\"leases\\"' in told
        assert process.value("evictune_leading") == 0.0
        assert process.alive()
        assert scene.status("chat") == {}
