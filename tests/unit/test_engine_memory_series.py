"""The series of a pod's memory fraction."""

from __future__ import annotations

from evictune_policies.engine.memory import Attempt, Record
from evictune_policies.engine.memory_series import Begun, memory_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(begun: Begun, record: Record) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in memory_families(begun, record)
        for sample in family.samples
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def test_an_attempt_and_a_restart_under_way() -> None:
    record = Record(Attempt(7, 0.85, "confirmed"), restarted=("d-1", "d-2"), leaving=True)
    assert samples(Begun(0.9, 0.85), record) == {
        ("evictune_memory_eligible", labels(reason="", message="")): 1,
        ("evictune_memory_fraction", labels(source="manifest")): 0.9,
        ("evictune_memory_fraction", labels(source="in-force")): 0.85,
        (
            "evictune_memory_attempt",
            labels(state="confirmed", fraction="0.85", revision="7", reason=""),
        ): 1,
        ("evictune_restart_info", labels(token="d-2", state="draining")): 1,
    }


def test_why_the_manifests_stands() -> None:
    dropped = samples(Begun(0.9, 0.9, "Dropped"), Record(Attempt(7, 0.95, "dropped")))
    told = labels(state="dropped", fraction="0.95", revision="7", reason="Dropped")
    assert dropped["evictune_memory_attempt", told] == 1
    begun = Begun(0.9, 0.9, ineligible="NoStateFolder", message="no volume")
    ineligible = samples(begun, Record())
    reason = labels(reason="NoStateFolder", message="no volume")
    assert ineligible["evictune_memory_eligible", reason] == 0
    told = labels(state="none", fraction="", revision="", reason="NoStateFolder")
    assert ineligible["evictune_memory_attempt", told] == 1
    assert Begun.read(begun.text()) == begun


def test_what_failed_under_an_earlier_document_keeps_its_revision_in_sight() -> None:
    record = Record(None, failed=((9, 0.95), (7, 0.93)))
    shown = samples(Begun(0.9, 0.9, "NotWanted"), record)
    told = labels(state="none", fraction="", revision="9", reason="NotWanted")
    assert shown["evictune_memory_attempt", told] == 1
