"""Two policies that look at one page at the same time: neither sees a restart that was none."""

from __future__ import annotations

import asyncio

from evictune.observe.dialects import Engine, Measure
from evictune.observe.direct import DirectSource
from evictune.observe.plugin import PluginReader
from evictune.observe.snapshot import PodKey
from evictune.observe.target import EnginePod

POD = EnginePod(PodKey("ns", "chat-0"), Engine.VLLM, "http://engine", "http://plugin", "u-1")


class OvertakingReader:
    """Pages whose counters grow; the first of two that are asked for at once comes back last."""

    def __init__(self) -> None:
        self.asked = 0

    async def read(self, url: str, timeout: float) -> str:
        self.asked += 1
        count, late = self.asked * 100, self.asked % 2
        await asyncio.sleep(0.02 * late)
        if url == "http://plugin":
            return (
                'evictune_engine_eligible{engine="0",reason=""} 1\n'
                f'evictune_evicted_blocks_total{{engine="0",region="lru"}} {count}\n'
            )
        return f'vllm:num_preemptions_total{{engine="0"}} {count}\n'


class Clock:
    """Half a second passes at each look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def test_a_direct_scrape_that_was_overtaken_is_no_restart() -> None:
    async def scenario() -> list[float]:
        source = DirectSource(OvertakingReader(), Clock(), 1.0)  # type: ignore[arg-type]
        grown = []
        for _ in range(3):
            looks = [source.snapshot([POD], 60.0, 1.0) for _ in range(2)]
            for snapshot in await asyncio.gather(*looks):
                grown += list(snapshot.values.get(Measure.PREEMPTIONS, {}).values())
        return grown

    assert asyncio.run(scenario()) == [100, 200, 300, 400, 500]


def test_a_plugin_page_that_was_overtaken_is_no_restart() -> None:
    async def scenario() -> list[object]:
        reader = PluginReader(OvertakingReader(), Clock())  # type: ignore[arg-type]
        seen = []
        for _ in range(3):
            looks = [reader.view([POD], 60.0) for _ in range(2)]
            seen += [view.evicted["lru"] for view in await asyncio.gather(*looks)]
        return [getattr(reading, "value", None) for reading in seen]

    assert asyncio.run(scenario()) == [None, 100, 200, 300, 400, 500]
