"""The memory fraction on real parts: two vLLM engines on a node, kubelet, Prometheus, the operator.

One story in the order of the tests. Engines are on the CPU, where the fraction is a share of the
container's memory. No request may be lost but by the engines that the tests kill themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from localcluster.controlplane import ControlPlane
from localcluster.node import Node
from tests.support.balanced_load import BalancedLoad, takes_requests
from tests.support.memory_stack import (
    CONFIRM,
    MANIFEST,
    POLICY,
    QUIET,
    SETTLE,
    SHORT,
    STORM,
    WINDOW,
    Scene,
    bounds,
    policy,
    start_engines,
)
from tests.support.scarce_memory import ScarceMemory
from tests.support.shell import Shell
from tests.support.stack import (
    CONFIG_MAP,
    NAMESPACE,
    RELEASE,
    WORKLOAD,
    closed_loop,
    container_of,
)

pytestmark = pytest.mark.timeout(2400)

# A start takes a minute or two on two processors, of which the other engine uses one.
RESTART = 420.0
DECIDED = 60.0 + 3 * (SETTLE + WINDOW)
JUDGED = 120.0 + 4 * (SETTLE + WINDOW) + CONFIRM
GIB = 2**30


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("memory")
    with (
        ControlPlane() as cluster,
        Node(cluster) as node,
        closed_loop(cluster, node, directory, start_engines) as stack,
    ):
        stack.apply_policy(policy("0.30", "0.05"))
        yield Scene(stack)


@pytest.fixture(scope="module")
def load(scene: Scene) -> Iterator[BalancedLoad]:
    with BalancedLoad(scene.stack.objects(), QUIET) as running:
        yield running


@pytest.fixture
def shell(scene: Scene, tmp_path: Path) -> Shell:
    return Shell(scene.stack.cluster, tmp_path / "terminal")


def test_a_storm_is_no_time_for_a_restart(scene: Scene, load: BalancedLoad) -> None:
    """Field case CL-1: at most one action, and the right words."""
    before = scene.identities()
    load.shape = STORM
    scene.wait_for("the storm", lambda: "Storm" in scene.holds() and preempts(scene), 600.0)
    ticks = scene.stack.ticks(POLICY)
    scene.wait_for("five looks more", lambda: scene.stack.ticks(POLICY) >= ticks + 5, 120.0)
    status = scene.status()
    assert status["regime"]["name"] == "CapacityBound", status["regime"]
    assert "preemptions a second" in status["regime"]["message"]
    storm = next(each for each in status["holds"] if each["reason"] == "Storm")
    assert "requests wait" in storm["message"]
    assert not {"Intended", "EngineRestarted"} & set(scene.told(""))
    assert scene.identities() == before
    assert not load.tally.failed


def test_a_fraction_that_cannot_start_is_dropped_by_the_pod_itself(
    scene: Scene, load: BalancedLoad
) -> None:
    """With the operator away; when it is back it knows, and the peer is untouched."""
    load.shape = SHORT
    before = scene.identities()
    scene.patch(knobs=bounds(MANIFEST, "0.45", "0.2"))
    # Of the 20 GiB so much is left that 0.25 starts, and 0.45 does not.
    with ScarceMemory(7 * GIB):
        decision = await_intent(scene, "0.45")
        canary = scene.canary()
        (peer,) = set(before) - {canary}
        scene.wait_for("the canary asked", lambda: not scene.ready(canary), 90.0)
        with operator_away(scene):
            failures = len(load.tally.failed)
            scene.stack.wait_for(
                "the canary back by itself", lambda: scene.serves(canary, MANIFEST), 2 * RESTART
            )
            assert scene.identities()[canary][1] >= before[canary][1] + 2
            assert len(load.tally.failed) == failures
        scene.wait_for("the end of the change", lambda: ended(scene, decision), 120.0)
    assert "EngineFailed" in scene.told(decision)
    assert scene.quarantined()["0.45"] == "EngineFailed"
    assert scene.identities()[peer] == before[peer]
    assert set(scene.fractions().values()) == {MANIFEST}
    assert not load.tally.failed


def test_a_canary_that_dies_while_it_serves_ends_the_change(
    scene: Scene, load: BalancedLoad
) -> None:
    """Minutes after its start, not yet confirmed: exit code 137, or 1 on a GPU."""
    load.shape = SHORT
    before = scene.identities()
    scene.patch(knobs=bounds(MANIFEST, "0.35", "0.1"))
    decision = await_intent(scene, "0.35")
    canary = scene.canary()
    (peer,) = set(before) - {canary}
    scene.wait_for("the canary back", lambda: scene.serves(canary, "0.35"), RESTART)
    time.sleep(CONFIRM / 2)
    lost = len(load.tally.failed)
    scene.stack.kill(scene.pods()[canary])
    scene.wait_for("the end of the change", lambda: ended(scene, decision), RESTART)
    scene.wait_for("both engines serve", scene.both_serve, RESTART)
    told = scene.told(decision)
    assert "EngineFailed" in told
    assert not {"CanaryPassed", "Kept"} & set(told)
    assert scene.quarantined()["0.35"] == "EngineFailed"
    assert scene.identities()[peer] == before[peer]
    assert set(scene.fractions().values()) == {MANIFEST}
    # What was in flight at the engine that the test killed, and nothing before or after.
    assert all(each.startswith(canary) for each in load.tally.failed[lost:])
    load.tally.failed.clear()


def test_a_canary_that_is_slower_goes_back(scene: Scene, load: BalancedLoad) -> None:
    load.shape = SHORT
    before = scene.identities()
    scene.patch(knobs=bounds(MANIFEST, "0.32", "0.07"))
    decision = await_intent(scene, "0.32")
    canary = scene.canary()
    (peer,) = set(before) - {canary}
    scene.wait_for("the canary back", lambda: scene.serves(canary, "0.32"), RESTART)
    with slowed(scene, canary):
        scene.wait_for("the verdict", lambda: "0.32" in scene.quarantined(), JUDGED)
    scene.wait_for("the end of the change", lambda: ended(scene, decision), RESTART)
    assert "CanaryPassed" not in scene.told(decision)
    assert scene.quarantined()["0.32"] == "Reverted", scene.status()["decisions"]
    assert scene.identities()[canary][1] == before[canary][1] + 2
    assert scene.identities()[peer] == before[peer]
    assert set(scene.fractions().values()) == {MANIFEST}
    assert not load.tally.failed


def test_a_shortage_is_answered_by_one_engine_after_the_other(
    scene: Scene, load: BalancedLoad, shell: Shell
) -> None:
    before, workload, blocks = scene.identities(), scene.workload(), scene.blocks()
    load.shape = SHORT
    scene.patch(knobs=bounds(MANIFEST, "0.30", "0.05"))
    decision = await_intent(scene, "0.3")
    canary = scene.canary()
    scene.wait_for("the canary back", lambda: scene.serves(canary, "0.30"), RESTART)
    assert sorted(scene.fractions().values()) == [MANIFEST, "0.3"]
    scene.wait_for("the verdict", lambda: "CanaryPassed" in scene.told(decision), JUDGED)
    scene.wait_for("the end of the change", scene.over, RESTART + JUDGED)
    assert "Kept" in scene.told(decision)
    assert scene.told(decision).count("EngineRestarted") == 2
    assert set(scene.fractions().values()) == {"0.3"}
    after = scene.blocks()
    assert all(after[name] > 1.2 * blocks[name] for name in blocks)
    assert scene.identities() == {name: (uid, n + 1) for name, (uid, n) in before.items()}
    document = scene.stack.document()
    assert document is not None
    assert document["default"]["gpuMemoryUtilization"] == 0.30
    assert not document.get("pods")
    assert scene.workload() == workload
    assert scene.status()["applied"]["values"]["gpuMemoryUtilization"] == "0.3"
    assert min(load.tally.answered[name] for name in before) > 0
    assert not load.tally.failed
    story = shell.run(f"evictune history {POLICY} -n {NAMESPACE} --steps")
    for words in ("Intended", "EngineRestarted", "CanaryPassed", "Kept", "0.3,"):
        assert words in story, story


def test_memory_wanted_back_through_everything_that_can_end(
    scene: Scene, load: BalancedLoad
) -> None:
    """The operator killed at each step, its document deleted, kubelet restarted: it converges."""
    load.shape = QUIET
    before, workload = scene.identities(), scene.workload()
    with watched(scene) as away:
        scene.patch(knobs=bounds(MANIFEST, MANIFEST, "0.05"))
        seen: set[tuple[str, int]] = set()
        deadline = time.monotonic() + 6 * RESTART
        while not (seen and scene.settled_at(MANIFEST)):
            assert time.monotonic() < deadline, scene.stack.diagnosis()
            pending = scene.status().get("pending")
            step = (pending["phase"], len(pending["pods"])) if pending else None
            if step is None or step in seen:
                time.sleep(0.3)
                continue
            seen.add(step)
            scene.stack.kill_operator()
            if step == ("Restarting", 1):
                scene.stack.cluster.kubectl(
                    "delete", "configmap", CONFIG_MAP, "-n", NAMESPACE, "--ignore-not-found"
                )
            if step == ("Restarting", 2):
                scene.stack.node.restart_kubelet()
            scene.stack.wait_for("an operator again", scene.operator_leads, 120.0)
            scene.stack.scrape()
    assert {("Restarting", 1), ("Settling", 1), ("Restarting", 2), ("Settling", 2)} <= seen
    scene.wait_for("both engines serve", scene.both_serve, RESTART)
    assert max(away) <= 1, "two engines away at once"
    restarts = {name: after[1] - before[name][1] for name, after in scene.identities().items()}
    assert restarts == dict.fromkeys(before, 1)
    assert scene.workload() == workload
    assert not load.tally.failed


def test_a_fraction_too_low_to_start_is_left(scene: Scene, load: BalancedLoad) -> None:
    """With the operator there: a twentieth of the memory is less than vLLM needs without blocks."""
    load.shape = QUIET
    before = scene.identities()
    scene.patch(knobs=bounds("0.05", "0.05", "0.2"))
    decision = await_intent(scene, "0.05")
    canary = scene.canary()
    (peer,) = set(before) - {canary}
    scene.wait_for("the end of the change", lambda: ended(scene, decision), 2 * RESTART)
    scene.wait_for("both engines serve", scene.both_serve, RESTART)
    assert "EngineFailed" in scene.told(decision)
    assert scene.quarantined()["0.05"] == "EngineFailed"
    assert scene.identities()[canary][1] >= before[canary][1] + 2
    assert scene.identities()[peer] == before[peer]
    assert set(scene.fractions().values()) == {MANIFEST}
    assert not load.tally.failed


def test_somebody_rolls_the_workload_out_in_the_middle(scene: Scene, load: BalancedLoad) -> None:
    """Its pods are replaced one by one, and nothing of ours restarts meanwhile."""
    with watched(scene) as away:
        scene.patch(knobs=bounds("0.28", "0.28", "0.03"))
        decision = await_intent(scene, "0.28")
        canary = scene.canary()
        scene.wait_for("the canary asked", lambda: not scene.ready(canary), 90.0)
        scene.stack.cluster.kubectl("rollout", "restart", f"deployment/{WORKLOAD}", "-n", NAMESPACE)
        objects = scene.stack.objects()
        scene.wait_for("the rollout", lambda: objects.rolled_out(WORKLOAD), 3 * RESTART)
        scene.stack.scrape()
        scene.wait_for("that change given up", lambda: "Abandoned" in scene.told(decision), 120.0)
        # A rollout ends a pod without asking who is served there.
        load.tally.failed.clear()
        scene.wait_for("the next one made", lambda: scene.settled_at("0.28"), 3 * RESTART)
    assert max(away) <= 1, "two engines away at once"
    assert not load.tally.failed


def test_the_only_engine_restarts_where_the_user_says_so(scene: Scene, load: BalancedLoad) -> None:
    stack = scene.stack
    stack.cluster.kubectl("scale", f"deployment/{WORKLOAD}", "-n", NAMESPACE, "--replicas=1")
    scene.wait_for("one engine", lambda: len(scene.pods()) == 1, 120.0)
    stack.scrape()
    load.tally.failed.clear()  # those of the engine that was scaled away
    before = scene.identities()
    scene.patch(knobs=bounds(MANIFEST, MANIFEST, "0.03"))
    scene.wait_for("refused", lambda: scene.holds() == ["NotRedundant", "MinReady"], 120.0)
    later = datetime.now(UTC) + timedelta(hours=6)
    window = {"cron": f"0 {later.hour} * * *", "duration": "1h", "timeZone": "UTC"}
    allowed = {"policy": "Allow", "minReady": 0, "windows": [window]}
    scene.patch(behavior={"disruption": allowed})
    scene.wait_for("outside", lambda: scene.holds() == ["OutsideWindow"], 60.0)
    (hold,) = scene.status()["holds"]
    assert later.strftime("%Y-%m-%dT%H:00:00Z") in hold["message"], hold
    assert scene.identities() == before
    now = datetime.now(UTC)
    window = {"cron": f"0 {now.hour} * * *", "duration": "3h", "timeZone": "UTC"}
    scene.patch(behavior={"disruption": {**allowed, "windows": [window]}})
    limit = RESTART + JUDGED
    scene.wait_for("the only engine restarted", lambda: scene.settled_at(MANIFEST), limit)
    assert scene.identities() == {name: (uid, n + 1) for name, (uid, n) in before.items()}
    assert not load.tally.failed


def preempts(scene: Scene) -> bool:
    """Whether running requests lose their blocks to others."""
    rate = scene.status().get("observed", {}).get("preemptionsPerSecond", "Unknown")
    return rate not in ("0", "Unknown")


def await_intent(scene: Scene, to: str) -> str:
    """The decision for a fraction, once it is under way."""
    scene.wait_for(f"a change to {to}", lambda: scene.begun(to), DECIDED)
    decision = scene.begun(to)
    assert decision is not None
    return decision


def ended(scene: Scene, decision: str) -> bool:
    """Whether the change, and what took it back, are over."""
    return bool(scene.told(decision)) and scene.over()


@contextmanager
def operator_away(scene: Scene) -> Iterator[None]:
    scene.stack.cluster.kubectl("scale", f"deployment/{RELEASE}", "-n", RELEASE, "--replicas=0")
    scene.stack.kill(scene.stack.objects(RELEASE).all("pod", leaving=True)[0])
    yield
    assert not scene.stack.objects(RELEASE).all("pod", leaving=True)
    scene.stack.scale_operator(1)


@contextmanager
def slowed(scene: Scene, name: str) -> Iterator[None]:
    """A pod's engine that stands still for 25 seconds in 27, behind a server that answers."""
    run, core = scene.stack.node.run, engine_core(scene, name)

    def stop_and_go(over: threading.Event) -> None:
        while not over.is_set():
            run("kill", "-STOP", core)
            over.wait(25.0)
            run("kill", "-CONT", core)
            over.wait(2.0)

    with beside(stop_and_go):
        yield


def engine_core(scene: Scene, name: str) -> str:
    """The process of a pod that runs the model, by its number within the node."""
    node = scene.stack.node
    lines = node.ctr("tasks", "ps", container_of(scene.pods()[name])).splitlines()[1:]
    numbers = [line.split()[0] for line in lines]
    (core,) = (each for each in numbers if "EngineCor" in node.run("cat", f"/proc/{each}/comm"))
    return core


@contextmanager
def watched(scene: Scene) -> Iterator[list[int]]:
    """How many of the two engines were away, at each look."""
    away: list[int] = []

    def look(over: threading.Event) -> None:
        while not over.wait(0.5):
            away.append(2 - sum(map(takes_requests, scene.pods().values())))

    with beside(look):
        yield away
    assert away


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Does what it is given until the block is over; raises what that raised."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, over)
        try:
            yield
        finally:
            over.set()
        working.result()
