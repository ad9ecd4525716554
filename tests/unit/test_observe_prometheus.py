"""The edge of Prometheus's API: refusals, silence, odd results, and what must not be told."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from evictune.api.sources import SourceDefinition, SourceKind
from evictune.observe.prometheus import AccessError, AnswerError, PrometheusClient

from tests.support.page_server import Answer, PageServer, serve

TOKEN = "s3cr3t-token"


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


@pytest.mark.parametrize("path", ["/prometheus", "/prometheus/"])
def test_the_path_is_joined_with_and_without_the_last_slash(path: str) -> None:
    with client(vector(), path) as (made, server):
        assert made.vector("up", 2.0) == []
    assert [asked.path for asked in server.asked] == ["/prometheus/api/v1/query"]
    assert server.asked[0].parameters == {"query": "up"}


def test_headers_and_token_are_sent_and_the_token_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    options = {"headers": {"X-Scope-OrgID": "team-a"}, "bearer_token_file": str(file)}
    with client(vector(), **options) as (made, server):
        made.vector("up", 2.0)
        file.write_text("two\n")
        made.vector("up", 2.0)
    sent = [asked.headers for asked in server.asked]
    assert [headers["X-Scope-OrgID"] for headers in sent] == ["team-a", "team-a"]
    assert [headers["Authorization"] for headers in sent] == ["Bearer one", "Bearer two"]


def test_a_refusal_in_plain_text_is_told_with_a_hint_and_asked_once() -> None:
    answer = Answer("no org id", status=401, content_type="text/plain")
    with client(answer) as (made, server), pytest.raises(AccessError) as caught:
        made.vector("up", 2.0)
    for words in ("'default'", "status 401", "no org id", "headers"):
        assert words in str(caught.value)
    assert len(server.asked) == 1


def test_a_server_s_fault_is_not_retried() -> None:
    with client(Answer("boom", status=500)) as (made, server), pytest.raises(AccessError) as caught:
        made.vector("up", 2.0)
    assert "status 500" in str(caught.value)
    assert len(server.asked) == 1


def test_secrets_that_the_server_repeats_are_not_told(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    answer = Answer(f"bad token {TOKEN} of tenant hush", status=403)
    options = {"headers": {"X-Scope-OrgID": "hush"}, "bearer_token_file": str(file)}
    with client(answer, **options) as (made, _), pytest.raises(AccessError) as caught:
        made.vector("up", 2.0)
    assert TOKEN not in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "bad token ***" in str(caught.value)


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


@pytest.mark.parametrize("kind", ["matrix", "scalar", "string"])
def test_a_result_of_another_type_is_a_typed_error(kind: str) -> None:
    with client(vector(kind=kind)) as (made, _), pytest.raises(AnswerError, match=f"a {kind}"):
        made.vector("up[1m]", 2.0)


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


def test_an_empty_list_that_is_written_as_null_is_empty() -> None:
    body = '{"status":"success","data":{"resultType":"vector","result":null}}'
    with client(Answer(body)) as (made, _):
        assert list(made.vector("up", 2.0)) == []


@pytest.mark.parametrize("content", [b"\xff\xfe", "tökén ☂".encode()])
def test_a_file_that_holds_no_token_is_named_not_repeated(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with (
        client(vector(), bearer_token_file=str(file)) as (made, _),
        pytest.raises(AccessError, match="bearerTokenFile") as caught,
    ):
        made.vector("up", 2.0)
    assert "tök" not in str(caught.value)


def test_a_missing_token_or_ca_file_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    with (
        client(vector(), bearer_token_file=gone) as (made, _),
        pytest.raises(AccessError, match="gone"),
    ):
        made.vector("up", 2.0)


def test_values_are_strings_and_not_finite_ones_survive() -> None:
    elements = [{"metric": {"pod": text}, "value": [1.0, text]} for text in ("0.93", "NaN", "+Inf")]
    with client(vector(*elements)) as (made, _):
        values = [float(series["value"][1]) for series in made.vector("up", 2.0)]
    assert values[0] == 0.93
    assert math.isnan(values[1])
    assert math.isinf(values[2])
