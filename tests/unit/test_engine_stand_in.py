"""The engine's stand-in on the real node shows what the operator reads of a real page."""

from __future__ import annotations

import pytest
from evictune.observe.dialects import Engine, Measure
from evictune.observe.engine_page import EnginePage, read_engine_page, sample_names
from evictune.observe.exposition import parse

from tests.support import engine_stand_in
from tests.support.engine_load import FAST, SLOW, Load
from tests.support.engine_stand_in import Serving


def read(serving: Serving) -> EnginePage:
    """As the operator reads it."""
    return read_engine_page(parse(serving.page(), sample_names(Engine.VLLM)), Engine.VLLM)


@pytest.mark.parametrize(("stock", "load"), [(True, SLOW), (False, FAST)])
def test_what_the_operator_reads_moves_as_the_load_says(
    stock: bool, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(engine_stand_in.time, "monotonic", lambda: now)
    serving = Serving("better")
    serving.stock = stock
    now += 10.0
    page = read(serving)
    counters = {(measure, bound): n for (measure, _, bound), n in page.counters.items()}
    assert counters[Measure.TTFT, float("inf")] == 400
    assert counters[Measure.TTFT, 1.0] == 10 * dict(load.ttft)[0.08]
    assert counters[Measure.COMPUTED_TOKENS, None] == pytest.approx(10 * load.computed)
    assert counters[Measure.PROMPTS, None] == pytest.approx(400)
    read_measures = {measure for measure, _ in counters} | {m for m, _ in page.gauges}
    assert read_measures == set(Measure) - {Measure.CACHE_CONFIG}
    assert page.infos


def test_an_older_version_lacks_what_came_later() -> None:
    names = read(Serving("better", ("vllm:prompt_tokens_by_source_total",))).names
    found = {name for (measure, _), name in names.items() if measure is Measure.COMPUTED_TOKENS}
    assert found == {"vllm:request_prefill_kv_computed_tokens_sum"}
