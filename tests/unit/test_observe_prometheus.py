"""The edge of Prometheus's API: refusals, silence, odd results, and what must not be told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.prometheus import AccessError, AnswerError, PrometheusClient

from tests.support.page_server import Answer, PageServer, serve


def vector(*elements: dict[str, Any], kind: str = "vector") -> Answer:
    data = {"resultType": kind, "result": list(elements)}
    return Answer(json.dumps({"status": "success", "data": data}), content_type="application/json")


@contextmanager
def client(
    answer: Answer, path: str = "", **options: Any
) -> Iterator[tuple[PrometheusClient, PageServer]]:
    with serve(lambda asked: answer) as server:
        definition = SourceDefinition(
            "default", SourceKind.PROMETHEUS, url=server.url + path, timeout=2.0, **options
        )
        made = PrometheusClient(definition)
        yield made, server
        made.close()


def test_a_server_s_fault_is_not_retried() -> None:
    with client(Answer("boom", status=500)) as (made, server), pytest.raises(AccessError) as caught:
        made.vector("up", 2.0)
    assert "status 500" in str(caught.value)
    assert len(server.asked) == 1


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    began = time.monotonic()
    with client(Answer(hang=True)) as (made, _), pytest.raises(AccessError, match="no answer"):
        made.vector("up", 0.2)
    assert time.monotonic() - began < 2


def test_nobody_listening_is_told_without_the_query() -> None:
    with serve(lambda asked: Answer()) as server:
        url = server.url
    made = PrometheusClient(SourceDefinition("default", SourceKind.PROMETHEUS, url=url))
    with pytest.raises(AccessError, match="Connection refused") as caught:
        made.vector("vllm:kv_cache_usage_perc", 1.0)
    assert "kv_cache" not in str(caught.value)


def test_a_redirect_does_not_carry_the_headers_away() -> None:
    moved = Answer(status=302, headers={"Location": "https://elsewhere.example/login?next=x"})
    options = {"headers": {"X-Scope-OrgID": "team-a"}}
    with client(moved, **options) as (made, server), pytest.raises(AccessError) as caught:
        made.vector("up", 2.0)
    assert "redirects to https://elsewhere.example/login:" in str(caught.value)
    assert len(server.asked) == 1


def test_a_query_it_cannot_answer_is_that_query_s_fault() -> None:
    body = json.dumps({"status": "error", "errorType": "bad_data", "error": "unknown function"})
    answer = Answer(body, status=400, content_type="application/json")
    with client(answer) as (made, _), pytest.raises(AnswerError, match="unknown function"):
        made.vector("oops(up)", 2.0)


@pytest.mark.parametrize(
    "body",
    [
        "<html>login</html>",
        "[]",
        "",
        '{"status":"success"}',
        '{"status":"success","data":["chat-8b"]}',
        '{"status":"success","data":{"resultType":"vector"}}',
    ],
)
def test_another_service_behind_the_address(body: str) -> None:
    with client(Answer(body)) as (made, _), pytest.raises(AccessError, match="does not speak"):
        made.vector("up", 2.0)


def test_a_missing_token_or_ca_file_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    with (
        client(vector(), bearer_token_file=gone) as (made, _),
        pytest.raises(AccessError, match="gone"),
    ):
        made.vector("up", 2.0)


def test_the_library_does_not_parse_an_answer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """That about a fleet is megabytes long."""
    parsed: list[str] = []
    monkeypatch.setattr(requests.models.complexjson, "loads", parsed.append)
    element = {"metric": {}, "value": [0, "1"]}
    with client(vector(element)) as (made, _):
        assert list(made.vector("up", 2.0)) == [element]
    assert parsed == []


def test_an_element_that_is_no_text_is_a_fault_of_this_query() -> None:
    element = '{"metric": {"pod": "\udcff"}, "value": [0, "1"]}'  # sent as the byte ff
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{element}]}}}}'
    with (
        client(Answer(body)) as (made, _),
        pytest.raises(AnswerError, match="an element cannot be read"),
    ):
        list(made.vector("up", 2.0))
