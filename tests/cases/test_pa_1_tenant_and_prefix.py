"""PA-1: a multi-tenant store wants its tenant header, and its API lies below a path."""

from __future__ import annotations

import logging

import pytest
from evictune.api.observation import Unknown, Value
from evictune.api.reasons import Reason

from tests.support.field_case import Scene, play
from tests.support.page_server import Answer, Asked

TENANT = "team-a"


def guarded(scene: Scene) -> None:
    """A store below /prometheus that asks for the tenant's header, in plain text."""

    def respond(asked: Asked) -> Answer:
        if not asked.path.startswith("/prometheus/"):
            return Answer("page not found", status=404)
        if asked.headers.get("X-Scope-OrgID") != TENANT:
            return Answer("no org id\n", status=401, content_type="text/plain")
        return scene.store.respond(asked)

    scene.server.respond = respond


@pytest.mark.parametrize("path", ["/prometheus", "/prometheus/"])
def test_both_spellings_of_the_url_ask_the_same_path(path: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store(url=scene.server.url + path, headers={"X-Scope-OrgID": TENANT})
        guarded(scene)
        scene.store.put("vllm:kv_cache_usage_perc", "0.88")
        assert (await scene.look()).readings.kv_usage == Value(0.88)
        paths = {asked.path for asked in scene.server.asked if asked.parameters}
        assert paths == {"/prometheus/api/v1/query"}

    play(scenario)


def test_without_the_header_the_refusal_is_told_and_not_hammered() -> None:
    async def scenario(scene: Scene) -> None:
        scene.use_store(url=scene.server.url + "/prometheus/")
        guarded(scene)
        seen = await scene.look()
        for reading in (seen.readings.kv_usage, seen.readings.ttft, seen.readings.preemptions):
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.SOURCE_UNAVAILABLE
        status, reason, message = seen.condition("MetricsAvailable")
        assert (status, reason) == ("False", "SourceUnavailable")
        for words in ("status 401", "'no org id'", "headers", "'default'"):
            assert words in message
        assert "Traceback" not in message
        for _ in range(4):
            await scene.look(after=1)
        assert len([asked for asked in scene.server.asked if asked.parameters]) == 1

    play(scenario)


def test_no_header_token_or_password_appears_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    """Not even if the store repeats it."""

    async def scenario(scene: Scene) -> None:
        hidden = {"X-Scope-OrgID": "hush-tenant", "X-Api-Key": "hush-key"}
        scene.use_store(headers=hidden)
        told = "tenant hush-tenant with key hush-key is not known"
        scene.store.fault = Answer(told, status=403)
        seen = await scene.look()
        assert "tenant *** with key ***" in seen.condition("MetricsAvailable")[2]
        assert "hush" not in str(seen.status)
        assert "hush" not in str([each.message for each in seen.decision.audit])

    with caplog.at_level(logging.DEBUG):
        play(scenario)
    assert "hush" not in caplog.text
