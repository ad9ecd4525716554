"""Of MN's kind: a pipeline between engine and store spells names its own way."""

from __future__ import annotations

import pytest
from evictune.api.observation import Interval, Value
from evictune.observe.dialects import MEANINGS, NAMES, Kind, Measure, Name
from evictune.observe.promql import query

from tests.support.field_case import Scene, play

SPELLINGS = ("vllm:{}_total", "vllm:{}", "vllm_{}_total", "vllm_{}")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_with_and_without_total_and_colon(spelling: str) -> None:
    async def scenario(scene: Scene) -> None:
        usage = "vllm_kv_cache_usage_perc" if "_{}" in spelling else "vllm:kv_cache_usage_perc"
        for after, count in ((0, 10), (60, 40)):
            name = spelling.format("num_preemptions")
            scene.page("owl-8b-a", f'{name}{{engine="0"}} {count}\n{usage}{{engine="0"}} 0.7\n')
            seen = await scene.look(after)
        assert seen.readings.preemptions == Value(0.5)
        assert seen.readings.kv_usage == Value(0.7)
        assert seen.readings.metric_names["preemptions"] == "vllm:num_preemptions_total"

    play(scenario)


def test_two_spellings_on_one_page_are_one_counter() -> None:
    async def scenario(scene: Scene) -> None:
        for after, count in ((0, 10), (60, 40)):
            names = (each.format("num_preemptions") for each in SPELLINGS)
            scene.page("owl-8b-a", "".join(f'{name}{{engine="0"}} {count}\n' for name in names))
            seen = await scene.look(after)
        assert seen.readings.preemptions == Value(0.5)

    play(scenario)


def test_a_histogram_in_underscores() -> None:
    async def scenario(scene: Scene) -> None:
        for after, (fast, slow) in ((0, (0, 0)), (60, (90, 100))):
            bucket = 'vllm_time_to_first_token_seconds_bucket{engine="0",le='
            scene.page(
                "owl-8b-a",
                f'{bucket}"0.1"}} 0\n{bucket}"0.5"}} {fast}\n{bucket}"+Inf"}} {slow}\n',
            )
            seen = await scene.look(after)
        assert isinstance(seen.readings.ttft, Interval)
        assert (seen.readings.ttft.lower, seen.readings.ttft.requests) == (0.5, 100)

    play(scenario)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name.engine}-{name.base}")
def test_a_store_is_asked_for_every_spelling_in_one_query(name: Name) -> None:
    text = query(name.measure, ["serve-a"], 60.0)
    spellings = name.spellings
    assert f'__name__=~"{"|".join(spellings)}"' in text
    assert spellings[0] == name.sample
    assert all(":" not in each for each in spellings[-1:])
    # The sum and the count of a histogram are no counters of their own.
    assert all(each.endswith(("_sum", "_count")) for each in spellings) or (
        MEANINGS[name.measure].kind is not Kind.COUNTER or len(spellings) == 4
    )


def test_the_spelling_without_total_is_no_other_measure_s_name() -> None:
    by_spelling: dict[str, set[str]] = {}
    for name in NAMES:
        for each in name.spellings:
            by_spelling.setdefault(each, set()).add(name.base)
    assert all(len(bases) == 1 for bases in by_spelling.values())
    assert len({name.measure for name in NAMES}) == len(Measure)
