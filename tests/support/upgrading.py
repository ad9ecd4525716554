"""A release upgraded from an older chart while a policy is in force, and what was seen of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from localcluster.paths import SOURCE_ROOT
from tests.support.installation import (
    GUIDE,
    IMAGE,
    NAME,
    NAMESPACE,
    REPOSITORY,
    Installation,
    wait_for,
)
from tests.support.serving import POLICY, Serving
from tests.support.walkthrough import steps

OLD_CHART = SOURCE_ROOT / "tests/data/chart/evictune-0.1.0.tgz"
# Under a tag of its own, so that another operator takes over; what it runs is today's.
OLD_IMAGE = f"{REPOSITORY}:0.0.1"


@dataclass(frozen=True)
class Seen:
    """What may not change by itself: the engine's process, its values, the policy."""

    engine: tuple[str, int]
    values: dict[str, Any]
    revision: int
    policy: str

    @classmethod
    def now(cls, serving: Serving) -> Seen:
        """As the cluster shows it."""
        (pod,) = serving.pods()
        applied = serving.status()["applied"]
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        uid = serving.objects.get("evp", POLICY)["metadata"]["uid"]
        identity = (pod["metadata"]["uid"], restarts)
        return cls(identity, applied["values"], applied["revision"], uid)


@dataclass(frozen=True)
class Upgrade:
    """The release now, and what was seen before it was upgraded."""

    release: Installation
    serving: Serving
    before: Seen

    def image(self) -> str:
        """What the operator's pod runs."""
        return str(self.release.pod()["spec"]["containers"][0]["image"])

    def followed(self) -> bool:
        """Whether the operator of now looks at the policy: it sees an edit."""
        generation = self.serving.objects.get("evp", POLICY)["metadata"]["generation"]
        return bool(self.serving.status().get("observedGeneration") == generation)

    def await_followed(self) -> None:
        """Wait for the rollout, then for the new operator to see an edit of the policy."""
        self.release.await_operator()
        ttl = 60 + self.serving.objects.get("evp", POLICY)["metadata"]["generation"]
        self.serving.patch({"behavior": {"knobTTL": f"{ttl}s"}})
        wait_for("the edit seen", self.followed)


@contextmanager
def upgraded_from(chart: object, release: Installation) -> Iterator[Upgrade]:
    """Install an older chart, bring a policy into force, and upgrade as the guide says."""
    release.uninstall()
    shell = release.shell
    release.node.tag_image(IMAGE, OLD_IMAGE)
    install = f"helm install {NAME} {chart} --namespace {NAMESPACE} --create-namespace"
    shell.run(f"{install} {_image(OLD_IMAGE)} {release.source}")
    release.await_operator()
    with Serving(release, "upgrade") as serving:
        serving.start()
        serving.bring_into_force(behavior={"knobTTL": "60s"})
        upgrade = Upgrade(release, serving, Seen.now(serving))
        (step,) = steps(GUIDE, "Upgrade")
        shell.run(f"{step.text} {_image(IMAGE)}")
        yield upgrade


def _image(name: str) -> str:
    """Helm's options for an operator's image."""
    repository, _, tag = name.rpartition(":")
    return f"--set image.repository={repository},image.tag={tag}"
