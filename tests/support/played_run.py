"""An hour of the operator at work, in a real Prometheus.

The operator is all there: reading the target, observing, deciding, writing, and telling in its own
series. Time is turned by hand and the engines are played at the edge of the protocol (`LoopCase`):
stock LRU misses the objective, the loop turns xi and meets it; then for twelve minutes the KV cache
is too small for what runs; then all is well again. A second policy names the same workload, so that
it says Conflict, and a second operator waits for the Lease.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from evictune.api.knobs import KnobValues
from evictune.operator_metrics import OperatorMetrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fake_engines import PORTS, Load, better_with_tlru
from tests.support.loop_case import EPOCH, NAMESPACE, LoopCase, play, policy_body
from tests.support.prometheus import Prometheus, prometheus
from tests.support.promtool import promtool

SECONDS = 60 * 60
APART = 30
CROWDED = range(30 * 60, 42 * 60)
RIVAL = "owl-trial"
_POLICIES = ("owl-chat", RIVAL)
# What says "none" when all is well; every other panel has something to show.
MAY_BE_EMPTY = {"engine: Knob documents refused now"}

Labels = tuple[tuple[str, str], ...]


class Played:
    """The series of the play, one sample every half a minute."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, Labels], list[tuple[float, float]]] = {}
        self._waiting = OperatorMetrics()
        self._waiting.leading.set(0)
        play(self._run, LoopCase(pods=2))

    async def _run(self, case: LoopCase) -> None:
        case.behave = lambda values: _load(values, case.now - EPOCH)
        late = {"uid": "0a1b2c3d-2", "creationTimestamp": "2026-11-02T00:00:00Z"}
        body = policy_body(RIVAL)
        case.put_policy(body | {"metadata": body["metadata"] | late})
        while case.now < EPOCH + SECONDS:
            for name in _POLICIES:
                await case.tick(name)
                self._show_schedule(case, name)
            self._read(case)
            case.now += APART

    def _show_schedule(self, case: LoopCase, name: str) -> None:
        """What the loop around the ticks shows."""
        metrics, key = case.metrics, (NAMESPACE, name)
        metrics.tick_seconds.labels(*key).observe(0.04 + 0.02 * math.sin(case.now))
        metrics.tick_lag.labels(*key).observe(0.005)
        metrics.tick_failures.labels(*key)
        metrics.last_tick.labels(*key).set(case.now)
        metrics.interval.labels(*key).set(APART)
        metrics.leading.set(1)
        metrics.policies.set(len(_POLICIES))
        metrics.last_list.set(case.now)
        metrics.last_event.set(case.now // 300 * 300)

    def _read(self, case: LoopCase) -> None:
        """Every page, labelled as by a scrape with honor_labels."""
        for number, each in enumerate((case.metrics, self._waiting)):
            pod = {"namespace": "evictune", "pod": f"evictune-{number}"}
            self._add(case.now, _text(each.registry), {**pod, "instance": f"10.1.0.{number}:9090"})
        for name, engine in case.engines.items():
            pod = {"namespace": NAMESPACE, "pod": name}
            for port in PORTS:
                text = case.pages(name, port) + _unplayed(engine.counters, engine.revision, port)
                self._add(case.now, text, {**pod, "instance": f"{name}:{port}"})

    def _add(self, now: float, text: str, target: Mapping[str, str]) -> None:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    labels = tuple(sorted({**target, **sample.labels}.items()))
                    self._samples.setdefault((sample.name, labels), []).append((now, sample.value))

    def lines(self) -> Iterator[str]:
        """OpenMetrics with times."""
        for (name, labels), samples in sorted(self._samples.items()):
            inside = ",".join(f"{key}={json.dumps(value)}" for key, value in labels)
            for now, value in samples:
                shown = "+Inf" if value == math.inf else repr(value)
                yield f"{name}{{{inside}}} {shown} {now:.0f}\n"
        yield "# EOF\n"


def _load(values: KnobValues, seconds: float) -> Load:
    load = better_with_tlru(values)
    wave = 1 + 0.2 * math.sin(seconds / 400)
    if int(seconds) in CROWDED:
        slow = ((0.08, 34.0), (1.4, 6.0))
        return replace(
            load, ttft=slow, computed=2400.0, preemptions=0.5, kv_usage=0.97, running=9, waiting=4
        )
    return replace(
        load, computed=load.computed * wave, kv_usage=0.35 * wave, running=round(3 * wave)
    )


def _text(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def _unplayed(counters: Mapping[str, float], revision: int, port: int) -> str:
    """Series of real pages that the played ones lack, since the operator decides without them."""
    if port == PORTS[0]:
        prompts = counters["queried"]
        return f'vllm:request_prompt_tokens_sum{{engine="0",model_name="tiny"}} {prompts}\n'
    lost = counters["computed"] / 2
    return (
        f'evictune_recomputed_tokens_total{{engine="0"}} {lost}\n'
        f'evictune_knob_change_seconds_sum{{engine="0"}} {revision * 0.0004}\n'
        f'evictune_knob_change_seconds_count{{engine="0"}} {revision}\n'
    )


@dataclass(frozen=True)
class Recorded:
    """Where the play can be asked for, and when it was: seconds since the epoch."""

    prometheus: Prometheus
    start: float = EPOCH
    end: float = EPOCH + SECONDS - APART

    def preview(self, out: Path, *more: str) -> list[str]:
        """The command line that draws all of it."""
        end = datetime.fromtimestamp(self.end, UTC).isoformat()
        last = f"{self.end - self.start:.0f}s"
        return [
            *("dashboards", "preview", "--prometheus", self.prometheus.url, "--out", str(out)),
            *("--end", end, "--last", last, "--scrape-interval", f"{APART}s", *more),
        ]


@contextmanager
def recorded(directory: Path) -> Iterator[Recorded]:
    """Play, and serve the series for as long as the `with` block lasts."""
    directory.mkdir()
    series = directory / "series.om"
    series.write_text("".join(Played().lines()))
    blocks = ("tsdb", "create-blocks-from", "openmetrics", str(series), str(directory / "data"))
    done = promtool(*blocks)
    assert done.returncode == 0, done.stdout + done.stderr
    lookback = f"{APART - 1}s"
    with prometheus("127.0.0.1", directory, f"{APART}s", lookback=lookback) as running:
        yield Recorded(running)
