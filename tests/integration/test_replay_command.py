"""evictune-replay as it is run: a process of its own, on small traces and the one carried here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from evictune_policies.algorithms.catalog import Cost
from evictune_policies.replay.advise import Advice, Verdict, advise
from evictune_policies.replay.console import cli
from evictune_policies.replay.console.advice_text import verdict
from evictune_policies.replay.console.progress import Progress
from evictune_policies.replay.console.session import Session
from evictune_policies.replay.goal import Goal
from evictune_policies.replay.simulation.order import OrderReplay
from evictune_policies.replay.traces.reading import read_trace

from tests.support.pressure import write_pressure
from tests.support.shell import INTERRUPTED
from tests.support.traces import MOONCAKE

COMMAND = (sys.executable, "-m", "evictune_policies.replay")
NUMBER, COUNT = {"type": "number"}, {"type": "integer", "minimum": 0}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
QUANTILES = ("p25", "p50", "p90", "p95", "p99", "mean")


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def by_xi(value: dict[str, Any]) -> dict[str, Any]:
    """An object whose names are lengths in tokens."""
    return {
        "type": "object",
        "patternProperties": {"^[0-9]+$": value},
        "additionalProperties": False,
    }


FIELDS = {
    "policy": {"type": "string"},
    "params": closed(
        {name: {"type": ["integer", "null"]} for name in ("xi_tokens", "q_hat_tokens")}
    ),
    "capacity_blocks": {"type": "integer", "minimum": 1},
    "block_tokens": {"type": "integer", "minimum": 1},
    "requests": COUNT,
    "hit_ratio": SHARE,
    "fidelity": {"enum": ["order", "timed"]},
    "uncached_tokens": closed(dict.fromkeys(QUANTILES, NUMBER)),
    "tel_tokens": by_xi(COUNT),
    "share_above": by_xi(SHARE),
    "recomputed_tokens": COUNT,
    "seconds": {"type": "number", "minimum": 0},
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def objects(done: subprocess.CompletedProcess[str], **more: dict[str, Any]) -> list[dict[str, Any]]:
    """What was printed, which has to be an array of objects with exactly the fields promised."""
    assert done.returncode == 0, done.stderr
    printed: list[dict[str, Any]] = json.loads(done.stdout)
    jsonschema.validate(printed, {"type": "array", "items": closed({**FIELDS, **more})})
    return printed


@pytest.fixture(scope="module")
def pressure(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_pressure(tmp_path_factory.mktemp("trace") / "pressure.jsonl"))


PARAMETERS = ("--policies", "prefix-lru,t-lru,tail-belady", "--xi", "4096", "--qhat", "1200")


def test_compare_prints_what_programs_rely_on(pressure: str) -> None:
    printed = objects(run("compare", pressure, "--capacity", "300,200", *PARAMETERS, "--json"))
    assert [(each["capacity_blocks"], each["policy"]) for each in printed] == [
        (capacity, policy)
        for capacity in (200, 300)
        for policy in ("prefix-lru", "t-lru", "tail-belady")
    ]
    stock, tlru, bound = printed[:3]
    assert tlru["params"] == {"xi_tokens": 4096, "q_hat_tokens": 1200}
    tel = [each["tel_tokens"]["4096"] for each in (bound, tlru, stock)]
    assert tel[0] <= tel[1] < tel[2]
    assert stock["requests"] == 756


def test_compare_prints_tables_and_writes_a_page(pressure: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("compare", pressure, "--capacity", "200", *PARAMETERS, "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "200 blocks, 102,400 tokens" in done.stdout
    assert "one request at a time" in done.stdout
    self_contained(page)


def self_contained(page: Path) -> None:
    """A page with a plot, a table, and nothing to fetch or run."""
    text = page.read_text()
    assert "<svg" in text
    assert "<table" in text
    assert "t-lru, xi 4,096, q_hat 1,200" in text or "target" in text
    for outside in ("<script", "<link", "src=", 'href="http', "@import"):
        assert outside not in text


def test_timed_replays_are_labelled_and_need_a_speed(pressure: str) -> None:
    timed = ("compare", pressure, "--capacity", "300", "--fidelity", "timed", "--json")
    refused = run(*timed)
    assert refused.returncode == 2
    assert "--prefill" in refused.stderr
    (printed,) = objects(run(*timed, "--prefill", "1e-6"))
    assert printed["fidelity"] == "timed"
    offline = run(*timed, "--prefill", "1e-6", "--policies", "belady")
    assert offline.returncode == 2
    assert "belady" in offline.stderr


def test_curve_over_capacity(pressure: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("curve", pressure, "--over", "capacity", *PARAMETERS, "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("knee") == 3
    self_contained(page)


def test_curve_over_load_says_which(pressure: str) -> None:
    curve = ("curve", pressure, "--over", "load", "--load", "1,2", *PARAMETERS, "--json")
    printed = objects(run(*curve, "--capacity", "300"), load=NUMBER)
    assert [each["load"] for each in printed] == [1, 2] * 3
    assert [each["requests"] for each in printed] == [756, 1512] * 3
    assert printed[1]["hit_ratio"] < printed[0]["hit_ratio"]
    without = run(*curve)
    assert without.returncode == 2
    assert "--capacity" in without.stderr


ADVISE = ("--capacity", "230", "--slo", "600ms", "--prefill", "1e-4", "--quantile", "0.97")


def test_advise_reaches_what_the_stock_order_does_not(pressure: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("advise", pressure, *ADVISE, "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "\nThe target can be reached: set t-lru, xi " in done.stdout
    self_contained(page)
    half = closed(
        {
            **dict.fromkeys(("requests", "late", "allowed", "tel_tokens"), COUNT),
            **dict.fromkeys(("p25", "p50"), COUNT),
            "met": {"type": "boolean"},
            "seconds": NUMBER,
        }
    )
    said = closed(
        {
            **{name: {"type": "string"} for name in ("role", "verdict")},
            **dict.fromkeys(("slo_seconds", "quantile", "xi_tokens"), NUMBER),
            "halves": closed(dict.fromkeys(("whole", "fitted", "other"), half)),
        }
    )
    printed = objects(run("advise", pressure, *ADVISE, "--json"), advice=said)
    roles = {each["advice"]["role"]: each for each in printed}
    assert roles["best"]["advice"]["verdict"] == "Reached"
    assert roles["best"]["advice"]["halves"]["other"]["met"]
    assert not roles["stock"]["advice"]["halves"]["whole"]["met"]


def test_convert_and_read_again(pressure: str, tmp_path: Path) -> None:
    log = str(tmp_path / "log.jsonl.gz")
    assert run("convert", pressure, "--to", "native", "-o", log).returncode == 0
    compare = ("--capacity", "200", *PARAMETERS, "--json")
    once, again = (objects(run("compare", path, *compare)) for path in (pressure, log))
    for each in (*once, *again):
        del each["seconds"]
    assert once == again


def bad_inputs(directory: Path) -> dict[str, str]:
    """What each path is, and a part of the complaint."""
    (directory / "empty.jsonl").touch()
    (directory / "binary.jsonl").write_bytes(bytes(range(256)) * 16)
    (directory / "prose.txt").write_text("once upon a time\n")
    (directory / "folder").mkdir()
    return {
        "missing.jsonl": "does not exist",
        "empty.jsonl": "",
        "binary.jsonl": "",
        "prose.txt": "",
        "folder": "",
    }


def test_what_is_no_trace_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, complaint in bad_inputs(tmp_path).items():
        path = str(tmp_path / name)
        assert cli.main(["compare", path, "--capacity", "100"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.startswith(f"evictune-replay: {path}")
        assert complaint in captured.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--capacity", "10"), "use at least"),
        (("--capacity", "200", "--block-tokens", "100"), "block size 100"),
        (("--capacity", "200", "--format", "parquet"), "unknown format 'parquet'"),
        (("--capacity", "200", "--html", "/nowhere/page.html"), "--html: /nowhere is no directory"),
    ],
)
def test_what_does_not_fit_the_trace_is_refused_in_one_line(
    pressure: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    assert cli.main(["compare", pressure, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert named in captured.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [*COMMAND, "policies"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()  # before anything is written
    _, complaints = process.communicate(timeout=120)
    assert (process.returncode, complaints) == (0, "")


def test_an_interrupt_says_nothing_more() -> None:
    """In the middle of work that takes half a minute, known by its first line of progress."""
    policies = "belady,tail-belady,lfu,gdsf,pgdsf,s3-fifo,sieve"
    options = ["--over", "capacity", "--policies", policies, "--xi", "8192"]
    process = subprocess.Popen(
        [*COMMAND, "curve", str(MOONCAKE), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=120)
    assert process.returncode in INTERRUPTED
    assert "Traceback" not in complaints


@cache
def mooncake_advice(capacity: int, slo_seconds: float, quantile: float) -> Advice:
    """On the carried trace, at a tenth of a millisecond a token: xi is 10,000 tokens a second."""
    trace = read_trace(MOONCAKE)
    session = Session(Progress(), OrderReplay)
    goal = Goal(slo_seconds, quantile, Cost(1e-4))
    return advise(trace, capacity, goal, partial(_replay, session, capacity))


def _replay(session: Session, capacity: int, trace: Any, knobs: Any) -> Any:
    return session.replay(trace, knobs, capacity)


def test_advice_on_mooncake_finds_an_xi_that_holds_on_the_other_half() -> None:
    """At 3,000 blocks and xi 16,384: the stock order misses, T-LRU meets the p82."""
    advice = mooncake_advice(3_000, 1.6384, 0.82)
    assert advice.verdict is Verdict.REACHED
    stock, best = advice.outcome("stock"), advice.outcome("best")
    assert stock is not None
    assert best is not None
    assert not stock.other.met
    assert best.other.met
    assert best.other.late < stock.other.late


def test_advice_on_mooncake_knows_that_less_tel_may_be_more_late_requests() -> None:
    """At 30,000 blocks and xi 8,192: T-LRU at that xi lowers TEL, and more requests are late."""
    advice = mooncake_advice(30_000, 0.8192, 0.8)
    stock, naive, best = (advice.outcome(role) for role in ("stock", "naive", "best"))
    assert stock is not None
    assert naive is not None
    assert best is not None
    assert naive.knobs.xi_tokens == 8_192
    assert naive.other.excess_tokens < stock.other.excess_tokens
    assert naive.other.late > 1.1 * stock.other.late
    text = "\n".join(verdict(advice))
    assert "although TEL is lower" in text
    # So another xi is taken, well below the target's, by its difference to q_hat.
    assert best.first.late <= stock.first.late
    assert best.knobs.xi_tokens is not None
    assert best.knobs.q_hat_tokens is not None
    assert best.knobs.xi_tokens - best.knobs.q_hat_tokens < 0.7 * 8_192


def test_advice_on_mooncake_says_when_eviction_is_not_the_problem() -> None:
    """A quarter of the requests is late at xi 8,192 even if nothing is ever evicted."""
    advice = mooncake_advice(30_000, 0.8192, 0.8)
    assert advice.verdict is Verdict.FLOOR_ABOVE_TARGET
    assert verdict(advice)[0].startswith("Eviction is not your problem")
