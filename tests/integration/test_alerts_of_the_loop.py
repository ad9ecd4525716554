"""Troubles through the operator's own loop: which alerts come of its series, and that no others do.

The loop runs in simulated time; promtool evaluates the rules over what it showed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from evictune.act.knobs import render_document
from evictune.api.decision import WriteKnobs
from evictune.api.knobs import KnobValues
from evictune.api.reasons import Reason
from evictune.kube import ApiError
from evictune.observe.pages import PageError

from tests.support.fake_engines import FAST, SLOW, Load
from tests.support.loop_case import CONFIG_MAP, POLICIES, LoopCase, play, policy_body
from tests.support.watched_loop import WatchedLoop

IDLE = Load(ttft=((0.08, 0.0),), computed=0.0, queried=0.0, evicted=(), kv_usage=0.0, running=0.0)
FULL = Load(ttft=SLOW.ttft, computed=3000.0, preemptions=2.0, kv_usage=0.97, waiting=9.0)

Trouble = Callable[[LoopCase, WatchedLoop], Awaitable[None]]


def few_values_will_do(values: KnobValues) -> Load:
    xi = values.xi_tokens
    if xi is None:
        return SLOW
    region = "protected" if xi < 600 else "tel-safe"
    return FAST if 600 <= xi <= 800 else replace(SLOW, evicted=((region, 50.0),))


async def none(case: LoopCase, watched: WatchedLoop) -> None:
    await watched.run(180)


async def no_traffic(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: IDLE
    await watched.run(90)


async def out_of_reach(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: SLOW
    await watched.run(180)


async def a_hard_search(case: LoopCase, watched: WatchedLoop) -> None:
    """It begins far from what will do, leaves four values behind, and ends well."""
    case.behave = few_values_will_do
    await watched.run(200)
    assert len(case.status["quarantine"]) == 4
    assert case.regime == Reason.HEALTHY


async def out_of_reach_over_a_restart(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: SLOW
    await watched.run(40)
    case.start()
    await watched.run(30)


async def a_burst(case: LoopCase, watched: WatchedLoop) -> None:
    await watched.run(30)
    case.behave = lambda values: SLOW
    await watched.run(3)
    case.behave = lambda values: FAST
    await watched.run(60)


async def full_engines(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: FULL
    await watched.run(60)


async def a_plugin_that_is_gone(case: LoopCase, watched: WatchedLoop) -> None:
    await watched.run(30)
    case.deaf.update(case.engines)
    await watched.run(30)


async def no_plugin_where_none_is_needed(case: LoopCase, watched: WatchedLoop) -> None:
    case.edit(mode="Observe")
    case.behave = lambda values: FAST
    case.deaf.update(case.engines)
    await watched.run(60)


async def pages_away(case: LoopCase, watched: WatchedLoop, minutes: int = 40) -> None:
    await watched.run(30)
    pages = case.pages

    def away(name: str, port: int) -> str:
        if port == 8000:
            raise PageError(f"{name}: timed out")
        return pages(name, port)

    case.pages = away  # type: ignore[method-assign]
    await watched.run(minutes)
    case.pages = pages  # type: ignore[method-assign]
    await watched.run(30)


async def pages_away_for_a_moment(case: LoopCase, watched: WatchedLoop) -> None:
    await pages_away(case, watched, 10)


async def somebody_edits_the_document(case: LoopCase, watched: WatchedLoop) -> None:
    await watched.run(30)
    body = case.api.objects[CONFIG_MAP]
    text = render_document(WriteKnobs(99, KnobValues(64, 200), 36000.0), case.now)
    body["metadata"]["managedFields"] = [
        {"manager": "kubectl-edit", "fieldsV1": {"f:data": {"f:knobs.json": {}}}}
    ]
    case.api.put(CONFIG_MAP, body | {"data": {"knobs.json": text}})
    await watched.run(30)


async def somebody_prunes_the_document(case: LoopCase, watched: WatchedLoop) -> None:
    await watched.run(30)
    case.behave = lambda values: FAST
    for _ in range(40):
        case.api.objects.pop(CONFIG_MAP, None)
        await watched.run(1)


async def a_spec_that_cannot_be_used(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: SLOW
    await watched.run(5)
    case.edit(slo={"ttft": {"quantile": "2", "threshold": "800ms"}})
    await watched.run(60)


async def a_document_that_may_not_be_read(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: SLOW
    await watched.run(5)
    refusal = ApiError(403, "Forbidden", "configmaps is forbidden")
    case.api.fault = lambda method, path: refusal if "/configmaps/" in path else None
    await watched.run(60)


async def an_api_server_that_is_away(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: SLOW
    await watched.run(5)
    case.api.fault = lambda method, path: ApiError(0, "Unreachable", "refused")
    await watched.run(60)


async def a_policy_that_is_deleted(case: LoopCase, watched: WatchedLoop) -> None:
    case.behave = lambda values: SLOW
    await watched.run(12)
    del case.api.objects[f"{POLICIES}/owl-chat"]
    await watched.run(60)


async def a_second_policy(case: LoopCase, watched: WatchedLoop) -> None:
    await watched.run(5)
    older = policy_body("owl-older", "0a1b2c3d-0")
    older["metadata"]["creationTimestamp"] = "2026-10-01T00:00:00Z"
    case.put_policy(older)
    case.behave = lambda values: FAST
    await watched.run(30)


@pytest.mark.parametrize(
    ("trouble", "alerts"),
    [
        (none, []),
        (no_traffic, []),
        (a_burst, []),
        (no_plugin_where_none_is_needed, []),
        (pages_away_for_a_moment, []),
        (a_policy_that_is_deleted, []),
        (out_of_reach, ["SLOBurnFast", "SLOBurnSlow", "QuarantineGrowing"]),
        (out_of_reach_over_a_restart, ["SLOBurnFast", "SLOBurnSlow"]),
        (a_hard_search, ["SLOBurnFast", "SLOBurnSlow"]),
        (full_engines, ["SLOBurnFast", "SLOBurnSlow", "CapacityBound"]),
        (a_plugin_that_is_gone, ["PolicyNotActive"]),
        (pages_away, ["MetricsLost"]),
        (somebody_edits_the_document, ["KnobFight"]),
        (somebody_prunes_the_document, ["KnobFight"]),
        (a_second_policy, ["KnobFight"]),
        (a_spec_that_cannot_be_used, ["PolicyNotReady"]),
        (a_document_that_may_not_be_read, ["PolicyNotReady", "OperatorStalled"]),
        (an_api_server_that_is_away, ["OperatorStalled"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value) or "silence",
)
def test_alerts(trouble: Trouble, alerts: list[str], tmp_path: Path) -> None:
    case = LoopCase()
    watched = WatchedLoop(case)
    play(lambda case: trouble(case, watched), case)
    watched.expect({f"Evictune{name}" for name in alerts}, tmp_path)
