"""docs/metrics.md says what the table of names says."""

from __future__ import annotations

from pathlib import Path

from evictune.observe.dialects import MEANINGS, Engine, Measure, names_of
from evictune.observe.metrics_page import metrics_page

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def test_the_page_is_generated_from_the_table() -> None:
    remedy = "run: python -m evictune.observe.metrics_page > docs/metrics.md"
    assert PAGE.read_text("utf-8") == metrics_page(), remedy


def test_every_measure_has_a_meaning_and_a_name_in_vllm() -> None:
    assert set(MEANINGS) == set(Measure)
    assert all(names_of(measure, Engine.VLLM) for measure in Measure)
