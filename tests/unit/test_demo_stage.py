"""Manifests that the demonstration applies, what it reads from the engine, how it tells."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from evictune.api.parse import parse_policy
from evictune.api.sources import SourceKind, parse_configuration
from evictune.wiring import Wiring, wire

from demo.constants import OBJECTIVE, TTFT_BUCKET_RATIO
from demo.load import Answer, Kind, Request
from demo.manifests import (
    Target,
    deployment,
    operator_configuration,
    policy,
    prometheus_configuration,
    ttft_buckets,
)
from demo.narrate import GREEN, Narrator
from demo.play import in_force, measured_target
from demo.record import Arm, Outcome
from demo.stage import Engine
from localcluster.processnode.spec import refusals

TARGET = Target(threshold=0.155, window=13.0, settle=6.0)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_policy_is_one_that_the_operator_follows() -> None:
    body = policy(TARGET)
    body["metadata"] |= {"uid": "u", "generation": 1, "resourceVersion": "1"}
    spec = parse_policy(body).spec
    assert spec.slo.ttft.threshold == 0.155
    assert spec.slo.ttft.window == 13.0
    assert spec.behavior.settle == 6.0
    assert spec.knobs.tlru is not None
    assert spec.knobs.tlru.xi_tokens.minimum == OBJECTIVE.xi_min


def test_the_wired_deployment_is_one_that_the_process_node_runs() -> None:
    manifest = yaml.safe_dump(deployment(Path("/model")), sort_keys=False)
    wired = yaml.safe_load(wire(manifest, Wiring()))
    pod = wired["spec"]["template"]
    assert refusals(pod) == []
    (container,) = pod["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["EVICTUNE_METRICS_ADDRESS"] == "$(POD_IP):9410"
    assert "EVICTUNE_KNOBS_DIR" in environment
    names = [each["name"] for each in container["env"]]
    assert names.index("POD_IP") < names.index("EVICTUNE_METRICS_ADDRESS")


def test_a_quantile_is_known_as_well_as_the_tolerance_wants() -> None:
    bounds = ttft_buckets()
    ratios = [after / before for before, after in pairwise(bounds)]
    assert max(ratios) <= TTFT_BUCKET_RATIO * 1.001
    assert min(ratios) > 1
    assert float(OBJECTIVE.tolerance) > TTFT_BUCKET_RATIO - 1


@pytest.mark.parametrize(
    ("url", "kind"), [("", SourceKind.DIRECT), ("http://127.0.0.1:9", SourceKind.PROMETHEUS)]
)
def test_the_operators_configuration_is_one_that_it_takes(url: str, kind: SourceKind) -> None:
    text = yaml.safe_dump(operator_configuration(9090, 8080, url))
    source = parse_configuration(text).sources["default"]
    assert (source.kind, source.url) == (kind, url)


def test_prometheus_scrapes_both_pages_under_the_pods_name() -> None:
    (job,) = prometheus_configuration("127.1.2.3", "chat-1")["scrape_configs"]
    (static,) = job["static_configs"]
    assert static["targets"] == ["127.1.2.3:8000", "127.1.2.3:9410"]
    assert static["labels"] == {"namespace": "demo", "pod": "chat-1"}


def test_the_process_id_is_read_from_the_containers_id() -> None:
    assert Engine("p", "u", "127.1.2.3", "process://4711-99", 0).process == 4711


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ('policy="lru",xi_tokens="",q_hat_tokens="",revision="0"', (None, 0)),
        ('policy="t-lru",xi_tokens="256",q_hat_tokens="60",revision="3"', (256, 3)),
    ],
)
def test_what_is_in_force_is_the_engines_word(
    labels: str, expected: tuple[int | None, int]
) -> None:
    page = (
        "# TYPE evictune_policy_info gauge\n"
        f'evictune_policy_info{{{labels},engine="0"}} 1\n'
        'evictune_policy_info{policy="t-lru",xi_tokens="9",q_hat_tokens="9",revision="1",'
        'engine="0"} 0\n'
    )
    assert list(in_force(page)) == [expected]


def test_the_target_follows_the_machines_pace() -> None:
    arm = Arm("lru", "stock LRU")
    for kind, counted, ttft, duration, uncached in (
        (Kind.TURN, False, 9.0, 9.1, 1800),  # a first touch is not counted
        (Kind.ONE_SHOT, True, 0.060, 0.1, 200),
        (Kind.ONE_SHOT, True, 0.060, 0.1, 200),
        (Kind.ONE_SHOT, True, 0.900, 1.0, 200),  # a hiccup does not move a median
        (Kind.TURN, True, 0.460, 0.6, 1200),
    ):
        request = Request(0, "three", counted, kind, -1, (3,), 8)
        arm.outcomes.append(Outcome(request, Answer(0.0, ttft, duration, 1800, 1800 - uncached)))
    target = measured_target(arm)
    # 60 ms and 0.4 ms for each of 250 more tokens
    assert target.threshold == pytest.approx(0.160)
    # (6 x 0.1 s and 0.6 s) / 7 for each of 50 and of 22 requests
    assert target.window == 9.0
    assert target.settle == 4.0


def test_without_a_terminal_there_are_plain_lines() -> None:
    stream = io.StringIO()
    narrator = Narrator(stream)
    narrator.say("one\ntwo", GREEN)
    narrator.progress("early")  # the first says something; another one at once does not
    narrator.progress("too soon")
    assert stream.getvalue() == "[ 0:00] one\n        two\n[ 0:00]   early\n"


def test_in_a_terminal_there_are_colours_and_a_last_line_that_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    narrator = Narrator(stream)
    narrator.progress("half way")
    narrator.say("done", GREEN)
    told = stream.getvalue()
    assert "\x1b[32mdone\x1b[0m" in told
    assert told.index("half way") < told.index("\r\x1b[K\x1b[2m[ 0:00]") < told.index("done")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Narrator(stream).say("done", GREEN)
    assert "\x1b[32m" not in stream.getvalue()


def test_work_that_takes_long_says_how_long() -> None:
    stream = io.StringIO()
    with Narrator(stream).working("Building"):
        pass
    assert stream.getvalue() == "[ 0:00] Building ...\n"
