"""The guard: what confirms a start, and how a restart goes, step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evictune_policies.engine import guard
from evictune_policies.engine.guard import Guard
from evictune_policies.engine.memory import Attempt, Record
from evictune_policies.engine.source import KnobSource
from evictune_policies.engine.state import StateFolder
from evictune_policies.engine.traffic import Message, Receive, Send, Traffic

TRYING = Record(Attempt(7, 0.85, "trying"))
POST = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}


class Stage:
    """A guard whose clock the test moves, over a real folder, a real document, real traffic."""

    def __init__(self, directory: Path, record: Record = TRYING) -> None:
        self.now = 0.0
        self.ended = 0
        self.started = 0
        self._directory = directory
        self.folder = StateFolder(str(directory))
        self.folder.write(record)
        self.traffic = Traffic(self._serving, lambda: self.now)
        self.guard = Guard(
            self.folder, record, KnobSource(directory, "chat-0"), self.traffic,
            confirm_seconds=300, not_ready_seconds=40, end=self._end,
            clock=lambda: self.now, monotonic=lambda: self.now,
        )  # fmt: skip

    def _serving(self) -> None:
        self.started += 1

    def _end(self) -> None:
        self.ended += 1

    def put(self, restart: str | None, drain: float = 120, expires: int = 2100) -> None:
        own: dict[str, Any] = {"policy": "lru", "gpuMemoryUtilization": 0.8, "drainSeconds": drain}
        document = {
            "schema": "evictune.io/knobs/v1",
            "revision": 8,
            "expires": f"{expires}-01-01T00:00:00Z",
            "default": {"policy": "lru"},
            "pods": {"chat-0": own if restart is None else {**own, "restart": restart}},
        }
        (self._directory / "knobs.json").write_text(json.dumps(document))

    def at(self, seconds: float) -> None:
        self.now = seconds
        self.guard.tick()

    def request(self, status: int = 200, scope: Message | None = None) -> list[Message]:
        """One request, answered at once; what was sent."""
        return asyncio.run(self._request(status, scope or dict(POST)))

    async def _request(self, status: int, scope: Message) -> list[Message]:
        sent: list[Message] = []

        async def application(_: Any, scope: Message, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": status, "headers": [(b"a", b"b")]})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        async def send(message: Message) -> None:
            sent.append(message)

        await self.traffic.around(application)(None, scope, _receive, send)
        return sent


async def _receive() -> Message:
    raise AssertionError("nothing is received")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_answers_over_the_whole_time_confirm(stage: Stage) -> None:
    stage.request()
    stage.at(299)
    stage.request()
    stage.guard.tick()
    assert stage.folder.read() == TRYING
    stage.now = 300
    stage.request()
    stage.at(301)
    assert stage.folder.read() == Record(Attempt(7, 0.85, "confirmed"))


def test_time_alone_does_not_confirm(stage: Stage) -> None:
    stage.at(10_000)
    stage.request()
    stage.at(20_000)  # it may hang
    assert stage.folder.read() == TRYING


@pytest.mark.parametrize(
    "scope",
    [
        {**POST, "method": "GET"},
        {**POST, "evictune": True},
        {**POST, "path": "/tokenize"},
        {**POST, "path": "/v1/chat/completions/render"},
        {**POST, "path": "/ping"},
        {"type": "websocket", "path": "/v1/realtime"},
    ],
    ids=["a look", "counted already", "tokenizing", "rendering", "a probe", "a websocket"],
)
def test_what_the_model_does_not_answer_does_not_confirm(stage: Stage, scope: Message) -> None:
    for now in (0, 300):
        stage.now = now
        stage.request(scope=scope)
        stage.guard.tick()
    assert stage.folder.read() == TRYING


@pytest.mark.parametrize("status", [400, 500, 503])
def test_errors_do_not_confirm(stage: Stage, status: int) -> None:
    for now in (0, 300):
        stage.now = now
        stage.request(status)
        stage.guard.tick()
    assert stage.folder.read() == TRYING


def test_an_answer_that_broke_off_is_neither_in_flight_nor_counted(stage: Stage) -> None:
    async def broken(_: Any, scope: Message, receive: Receive, send: Send) -> None:
        assert stage.traffic.in_flight == 1
        await send({"type": "http.response.start", "status": 200})
        raise ConnectionError

    async def send(_: Message) -> None: ...

    with pytest.raises(ConnectionError):
        asyncio.run(_run(stage.traffic.around(broken)(None, dict(POST), _receive, send)))
    assert stage.traffic.in_flight == 0
    assert stage.traffic.served_seconds is None


async def _run(awaitable: Awaitable[None]) -> None:
    await awaitable


def test_the_start_of_the_application_starts_the_guard(stage: Stage) -> None:
    stage.request(scope={"type": "lifespan"})
    assert stage.started == 1
    assert stage.traffic.served_seconds is None


def test_it_watches_once_however_often_the_application_starts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[dict[str, Any]] = []

    def thread(**made: Any) -> Any:
        threads.append(made)
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(guard.threading, "Thread", thread)
    for _ in range(3):
        stage.guard.start()
    assert [(made["name"], made["daemon"]) for made in threads] == [("evictune-memory", True)]


def test_whatever_goes_wrong_it_watches_on_and_says_so_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[str] = []

    def broken() -> None:
        looks.append("look")
        raise RuntimeError("a bug of ours")

    def sleep(seconds: float) -> None:
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(stage.guard, "tick", broken)
    monkeypatch.setattr(guard.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        stage.guard._watch()
    assert caplog.text.count("The plugin's guard failed") == 1


def test_a_restart_is_on_record_then_not_ready_then_the_end(stage: Stage) -> None:
    stage.put("d-1")
    assert not stage.traffic.leaving
    stage.at(0)
    assert stage.traffic.leaving
    assert stage.folder.read() == Record(TRYING.attempt, restarted=("d-1",), leaving=True)
    stage.at(39)
    assert stage.ended == 0, "the cluster may not know yet that it is not ready"
    stage.at(40)
    assert stage.ended == 1
    stage.at(41)
    assert stage.ended == 2, "the end is called for until it comes"


def test_requests_in_flight_are_awaited_until_the_limit(stage: Stage) -> None:
    stage.put("d-1")
    stage.at(0)
    stage.traffic.in_flight = 1
    stage.at(119)
    assert stage.ended == 0
    stage.traffic.in_flight = 0
    stage.at(119.5)
    assert stage.ended == 1


def test_the_limit_ends_it_whatever_is_in_flight(stage: Stage) -> None:
    stage.put("d-1", drain=30)
    stage.at(0)
    stage.traffic.in_flight = 3
    stage.at(29)
    assert stage.ended == 0
    stage.at(30)
    assert stage.ended == 1


def test_answers_close_their_connections_while_the_engine_leaves(stage: Stage) -> None:
    assert stage.request()[0]["headers"] == [(b"a", b"b")]
    stage.put("d-1")
    stage.at(0)
    assert stage.request()[0]["headers"] == [(b"a", b"b"), (b"connection", b"close")]


@pytest.mark.parametrize(
    "put",
    [
        lambda stage: stage.put(None),
        lambda stage: stage.put("old"),
        lambda stage: stage.put("d-1", expires=1970 - 1),
        lambda stage: None,
    ],
    ids=["no word", "carried out", "expired", "no document"],
)
def test_no_restart(tmp_path: Path, put: Callable[[Stage], None]) -> None:
    record = Record(restarted=("old", "older"))
    stage = Stage(tmp_path, record)
    put(stage)
    stage.at(0)
    stage.at(1000)
    assert not stage.traffic.leaving
    assert stage.ended == 0
    assert stage.folder.read() == record


def test_what_cannot_be_put_on_record_is_not_carried_out(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "memory.new").mkdir()
    stage.put("d-1")
    for now in range(3):
        stage.at(now)
    assert not stage.traffic.leaving
    assert caplog.text.count("Neither confirmed nor restarted") == 1
    (tmp_path / "memory.new").rmdir()
    stage.at(3)
    assert stage.traffic.leaving
