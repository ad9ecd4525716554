"""Behaviours on the real node, a folder each: what they share, and what their failures leave.

Those with a real vLLM share one engine and one node (`groups.ENGINE`); others share another node
(`groups.LIFE`), where the chart is installed, used, upgraded and removed as in a release's life.
What makes a behaviour fail is kept in build/e2e/BEHAVIOUR/.

All of it ends when a worker leaves this package, for a cluster that nobody uses takes a tenth of a
processor from those that are tested.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator

import pytest

from localcluster.controlplane import ControlPlane
from localcluster.node import Node
from tests.support.artefacts import BEHAVIOURS, behaviour_of, collect, forget
from tests.support.background_load import prefill_seconds
from tests.support.groups import ORDER
from tests.support.installation import Installation
from tests.support.loop import THRESHOLD_TOKENS, Pace
from tests.support.serving import Serving
from tests.support.shell import Shell
from tests.support.stack import Stack, closed_loop
from tests.support.upgrading import OLD_CHART, Upgrade, upgraded_from

CLUSTER = pytest.StashKey[ControlPlane]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the behaviours; whatever is elsewhere stays where it is."""
    mine = [item for item in items if BEHAVIOURS in item.path.parents]
    places = [place for place, item in enumerate(items) if BEHAVIOURS in item.path.parents]
    for place, item in zip(places, sorted(mine, key=_rank), strict=True):
        items[place] = item


def _rank(item: pytest.Item) -> int:
    behaviour = behaviour_of(item.path)
    return ORDER.index(behaviour) if behaviour in ORDER else len(ORDER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what the cluster shows at the moment of a failure."""
    report = yield
    cluster = item.session.stash.get(CLUSTER, None)
    behaviour = behaviour_of(item.path)
    if report.when == "setup":
        forget(behaviour, item.name)
    if report.failed and cluster is not None:
        place = collect(cluster, behaviour, item.name, report.longreprtext)
        report.sections.append(("artefacts", str(place)))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The last behaviour that needs the engine stops it where this worker has more to do."""
    running = getattr(item, "funcargs", {}).get("stack")
    if running and nextitem and "stack" not in getattr(nextitem, "fixturenames", ()):
        running.stop()


@pytest.fixture(scope="package")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """One control plane for all, which failures are looked up in."""
    with ControlPlane() as running:
        request.session.stash[CLUSTER] = running
        yield running
        del request.session.stash[CLUSTER]


@pytest.fixture(scope="package")
def node(control_plane: ControlPlane) -> Iterator[Node]:
    """A real node of that control plane (root). Pods run images loaded by `node.load_image`."""
    with Node(control_plane) as running:
        yield running


@pytest.fixture(scope="package")
def stack(
    control_plane: ControlPlane, node: Node, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """A real vLLM, a real Prometheus and the operator."""
    with closed_loop(control_plane, node, tmp_path_factory.mktemp("loop")) as running:
        yield running


@pytest.fixture(scope="package")
def pace(stack: Stack) -> Pace:
    """How fast this machine is now."""
    return Pace(prefill_seconds(stack.engine.url, THRESHOLD_TOKENS))


@pytest.fixture(scope="package")
def shell(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A terminal at the cluster."""
    return Shell(control_plane, tmp_path_factory.mktemp("terminal"))


@pytest.fixture(scope="package")
def release(shell: Shell, node: Node) -> Installation:
    """The chart's release, installed or not."""
    return Installation(shell, node)


@pytest.fixture
def installation(release: Installation) -> Installation:
    """The chart installed as the README says, its operator running."""
    release.ensure()
    return release


@pytest.fixture(scope="package")
def upgraded(release: Installation) -> Iterator[Upgrade]:
    """The release made anew from chart 0.1.0, and upgraded with a policy in force."""
    with upgraded_from(OLD_CHART, release) as upgrade:
        yield upgrade


@pytest.fixture
def namespace(request: pytest.FixtureRequest, installation: Installation) -> Iterator[Serving]:
    """A namespace for this behaviour, with nothing in it."""
    name = behaviour_of(request.path).replace("_", "-")
    with Serving(installation, f"{name}-{secrets.token_hex(2)}") as made:
        yield made


@pytest.fixture
def serving(namespace: Serving) -> Serving:
    """The same with a wired engine whose objective stock LRU misses and T-LRU meets."""
    namespace.start()
    return namespace
