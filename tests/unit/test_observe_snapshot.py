"""A snapshot of a fleet, and the part of it that is one policy's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evictune.api.observation import Unknown
from evictune.api.reasons import Reason
from evictune.observe.dialects import Measure
from evictune.observe.snapshot import PodKey, RankKey, Snapshot

OURS, THEIRS = PodKey("team", "chat-0"), PodKey("team", "other-0")
FIRST, SECOND, OTHER = RankKey(OURS, "0"), RankKey(OURS, "1"), RankKey(THEIRS, "0")
FAULT = Unknown(Reason.SOURCE_UNAVAILABLE, "no answer")


def snapshot() -> Snapshot:
    return Snapshot(
        values={Measure.RUNNING: {SECOND: 2.0, OTHER: 3.0, FIRST: 1.0}},
        buckets={Measure.TTFT: {OTHER: {1.0: 4.0}}},
        seconds={FIRST: 300.0, SECOND: 300.0, OTHER: 60.0},
        infos={OTHER: {"block_size": "16"}},
        names={Measure.RUNNING: {FIRST: "a", SECOND: "a", OTHER: "b"}},
        faults={Measure.WAITING: FAULT},
        pod_faults={THEIRS: FAULT},
        stray="what belongs to nobody",
    )


def test_of_some_pods_it_says_what_it_says_of_all() -> None:
    part = snapshot().of([OURS])
    assert part.values == {Measure.RUNNING: {FIRST: 1.0, SECOND: 2.0}}
    assert part.buckets == {Measure.TTFT: {}}
    assert part.seconds == {FIRST: 300.0, SECOND: 300.0}
    assert part.infos == {}
    assert part.names == {Measure.RUNNING: {FIRST: "a", SECOND: "a"}}
    assert (part.faults, part.stray) == ({Measure.WAITING: FAULT}, "what belongs to nobody")


def test_of_all_its_pods_it_is_the_same() -> None:
    assert snapshot().of([OURS, THEIRS]) == snapshot()


def test_a_pod_without_series_is_not_in_it() -> None:
    assert snapshot().of([PodKey("team", "new-0")]).ranks == {}


def test_the_ranks_of_a_pod_are_in_order_whatever_tells_of_them() -> None:
    only_infos = Snapshot(values={}, buckets={}, seconds={}, infos={FIRST: {}})
    assert snapshot().ranks == {OURS: [FIRST, SECOND], THEIRS: [OTHER]}
    assert only_infos.ranks == {OURS: [FIRST]}


def test_a_policy_s_part_costs_nothing_for_the_pods_of_others() -> None:
    """Once the snapshot is in order, nobody walks through it: a fleet's ticks would add up."""
    running = _Walked({FIRST: 1.0, SECOND: 2.0, OTHER: 3.0})
    fleet = Snapshot(values={Measure.RUNNING: running}, buckets={}, seconds={})
    assert fleet.ranks
    walks = running.walks
    assert fleet.of([OURS]).values == {Measure.RUNNING: {FIRST: 1.0, SECOND: 2.0}}
    assert running.walks == walks


class _Walked(Mapping[RankKey, float]):
    """A mapping that counts how often it was walked through."""

    def __init__(self, values: dict[RankKey, float]) -> None:
        self.walks = 0
        self._values = values

    def __getitem__(self, key: RankKey) -> float:
        return self._values[key]

    def __iter__(self) -> Iterator[RankKey]:
        self.walks += 1
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
