"""The table of names is whole (that docs/reference/metrics.md follows it, test_crd.py proves)."""

from __future__ import annotations

from evictune.observe.dialects import MEANINGS, Engine, Measure, names_of


def test_every_measure_has_a_meaning_and_a_name_in_vllm() -> None:
    assert set(MEANINGS) == set(Measure)
    assert all(names_of(measure, Engine.VLLM) for measure in Measure)
