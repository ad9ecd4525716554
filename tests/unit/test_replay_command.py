"""evictune-replay: what is refused and how, and what tables and texts look like.

Nothing here replays, so nothing here waits for the compiler.
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from evictune_policies.algorithms.catalog import POLICIES, Cost
from evictune_policies.replay.console import cli
from evictune_policies.replay.console.arguments import duration, prefill_cost
from evictune_policies.replay.console.progress import Progress
from evictune_policies.replay.console.record import record
from evictune_policies.replay.console.table import duration as told
from evictune_policies.replay.console.table import folded, table
from evictune_policies.replay.console.text import ages, comparison, gap_closed
from evictune_policies.replay.knobs import Knobs, combinations
from evictune_policies.replay.mechanics import AGE_BINS
from evictune_policies.replay.simulation.result import Result
from evictune_policies.replay.traces.trace import Trace


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


COMPARE = ("compare", "trace.jsonl", "--capacity", "3000")
ADVISE = ("advise", "trace.jsonl", "--capacity", "3000", "--slo", "800ms", "--prefill", "1e-4")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), ("COMMAND",)),
        ((*ADVISE, "--slo", "9" * 30 + "m"), ("--slo", "at most 1000000000s", "800ms")),
        ((*ADVISE, "--prefill", "1e-320"), ("--prefill", "'1e-320'", "1e-15 to 1000")),
        ((*ADVISE, "--prefill", "1e-4,1e300"), ("--prefill", "'1e-4,1e300'", "1e-15 to 1000")),
        ((*COMPARE, "--conversations-per-second", "1e-320"), ("1e-320", "1e-09 to 1e+09")),
        (("compair",), ("'compair'", "compare")),
        (("compare",), ("TRACE", "--capacity")),
        ((*COMPARE, "--capacity", "0"), ("--capacity", "0 is out of range", "1 to")),
        ((*COMPARE, "--capacity", "-5"), ("--capacity", "'-5'", "3000,10000")),
        ((*COMPARE, "--capacity", "3000,"), ("--capacity", "''", "3000,10000")),
        ((*COMPARE, "--capacity", "many"), ("--capacity", "'many'", "3000,10000")),
        ((*COMPARE, "--capacity", "1_000"), ("--capacity", "'1_000'")),
        ((*COMPARE, "--capacity", "9" * 30), ("--capacity", "3000,10000")),
        ((*COMPARE, "--capacity", "999999999"), ("--capacity", "out of range", "100,000,000")),
        ((*COMPARE, "--xi", "-1"), ("--xi", "'-1'", "8192,16384")),
        ((*COMPARE, "--xi", "8192.5"), ("--xi", "'8192.5'", "whole number")),
        ((*COMPARE, "--qhat", "10000001"), ("--qhat", "out of range", "10,000,000")),
        ((*COMPARE, "--policies", "prefix-lru,mru"), ("--policies", "'mru'", "policies")),
        ((*COMPARE, "--policies", "t-lru"), ("--xi", "t-lru", "--xi 8192")),
        ((*COMPARE, "--policies", "t-lru", "--xi", "1"), ("--qhat", "t-lru", "--qhat 200")),
        ((*COMPARE, "--block-tokens", "0"), ("--block-tokens", "out of range")),
        ((*COMPARE, "--prefill", "1,2,3"), ("--prefill", "'1,2,3'", "QUADRATIC")),
        ((*COMPARE, "--prefill", "nan"), ("--prefill", "'nan'", "finite")),
        ((*COMPARE, "--prefill", "0"), ("--prefill", "'0'", "above 0")),
        ((*COMPARE, "--conversations-per-second", "0"), ("--conversations-per-second", "above 0")),
        ((*COMPARE, "--fidelity", "exact"), ("--fidelity", "'exact'", "timed")),
        ((*ADVISE, "--slo", "800"), ("--slo", "'800'", "800ms")),
        ((*ADVISE, "--slo", "0ms"), ("--slo", "'0ms'", "above zero")),
        ((*ADVISE, "--quantile", "99"), ("--quantile", "99", "0.99")),
        ((*ADVISE, "--capacity", "1,2"), ("--capacity", "'1,2'", "10000")),
        (("curve", "t", "--over", "time"), ("--over", "'time'", "load")),
        (("curve", "t", "--over", "load", "--load", "0.5"), ("--load", "0.5 is less than 1")),
        (("convert", "t", "--to", "csv", "-o", "x"), ("--to", "'csv'", "native")),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    code, out, err = outcome(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("evictune-replay: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for text in named:
        assert text in err


def test_policies_are_listed_without_the_compiler() -> None:
    """Needs NumPy alone, and so answers at once."""
    code = (
        "import sys; from evictune_policies.replay.console.cli import main; main(['policies']); "
        "heavy = {'numba', 'matplotlib', 'msgspec', 'jinja2'} & set(sys.modules); assert not heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    listed = {line.split()[0] for line in done.stdout.splitlines()[2:] if line}
    assert set(POLICIES) <= listed


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_fault(closed: str) -> None:
    command = f"{sys.executable} -m evictune_policies.replay"
    listed = subprocess.run(["sh", "-c", f"{command} policies {closed}"], check=False)
    refused = subprocess.run(["sh", "-c", f"{command} compare {closed}"], check=False)
    assert (listed.returncode, refused.returncode) == (0, 2)


def test_help_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compare", "curve", "advise", "convert", "policies"):
        code, out, _ = outcome(capsys, command, "--help")
        assert code == 0
        assert command in out


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("800ms", 0.8), ("0.8s", 0.8), ("2m", 120.0), ("250us", 0.00025)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


def test_prefill_cost() -> None:
    assert prefill_cost("1e-4") == Cost(1e-4, 0.0)
    assert prefill_cost("1e-4,2e-9") == Cost(1e-4, 2e-9)


def test_a_policy_runs_once_for_each_value_of_what_it_depends_on() -> None:
    assert combinations(["prefix-lru", "t-lru", "tail-belady"], [8192, 16384], [200]) == [
        Knobs("prefix-lru"),
        Knobs("t-lru", 8192, 200),
        Knobs("t-lru", 16384, 200),
        Knobs("tail-belady", 8192),
        Knobs("tail-belady", 16384),
    ]


def test_table_is_aligned() -> None:
    assert table(("policy", "p50"), [("lru", "1,234"), ("t-lru", "5")]).splitlines() == [
        "policy    p50",
        "------  -----",
        "lru     1,234",
        "t-lru       5",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.8, "800 ms"), (0.0005, "0.5 ms"), (2.5, "2.5 s"), (3537.0, "59 min")]
)
def test_times_as_a_person_writes_them(seconds: float, text: str) -> None:
    assert told(seconds) == text


def result(policy: str, uncached: list[int], xi: int | None = None) -> Result:
    """Of requests with prompts of 1,000 tokens."""
    prompt = np.full(len(uncached), 1000, np.int64)
    none = np.zeros(1, np.int64)
    return Result(
        policy=policy,
        xi_tokens=xi,
        q_hat_tokens=None,
        capacity_blocks=10,
        block_tokens=100,
        fidelity="order",
        prompt_tokens=prompt,
        cached_tokens=prompt - np.array(uncached),
        recomputed=np.zeros(len(uncached), np.int64),
        hit_age=none,
        eviction_age=none,
        seconds=0.5,
    )


def test_record_has_exactly_the_fields_that_programs_rely_on() -> None:
    assert record(result("tail-belady", [100, 500, 900, 1000], xi=400), [400, 1000]) == {
        "policy": "tail-belady",
        "params": {"xi_tokens": 400, "q_hat_tokens": None},
        "capacity_blocks": 10,
        "block_tokens": 100,
        "requests": 4,
        "hit_ratio": (9 + 5 + 1 + 0) / 40,
        "fidelity": "order",
        "uncached_tokens": {
            "p25": 100, "p50": 500, "p90": 1000, "p95": 1000, "p99": 1000, "mean": 625.0
        },
        "tel_tokens": {"400": 1200, "1000": 0},
        "share_above": {"400": 0.75, "1000": 0.0},
        "recomputed_tokens": 0,
        "seconds": 0.5,
    }  # fmt: skip


def test_the_gap_is_told_where_both_its_ends_were_replayed() -> None:
    stock = result("prefix-lru", [500, 900])
    bound = result("tail-belady", [400, 500], xi=400)
    middle = result("t-lru", [450, 700], xi=400)
    assert gap_closed(middle, [stock, bound, middle], 400) == pytest.approx(0.5)
    assert gap_closed(middle, [stock, middle], 400) is None
    assert gap_closed(middle, [stock, bound, middle], 300) is None  # a bound of another xi


def test_comparison_has_a_table_for_each_capacity() -> None:
    results = [result("prefix-lru", [500, 900]), result("t-lru", [450, 700], 400)]
    text = comparison(tenants_of(2, ("all",)), results, [400])
    assert text.startswith("10 blocks, 1,000 tokens\n")
    assert text.splitlines()[-1].startswith("order: one request at a time")
    lines = text.splitlines()
    assert lines[2].split() == [
        *("policy", "xi", "q_hat", "hit", "ratio", "uncached", "p25", "p50", "p90", "p95"),
        *("p99", "mean", "recomputed"),
    ]  # fmt: skip
    (tail,) = (line for line in lines if "above" in line and line.startswith("policy"))
    assert tail.split() == ["policy", "xi", "q_hat", "above", "400", "TEL", "of", "gap"]
    assert lines[4].split()[:4] == ["prefix-lru", "30.0", "%", "500"]


def test_what_is_printed_fits_a_terminal() -> None:
    """Long names, long numbers, many xi and many tenants."""
    results = [result("length-aware-t-lru", [1000] * 40, 10_000_000)]
    xis = [8_000_000 + n for n in range(7)]
    few = comparison(tenants_of(40, ("a" * 40, "b" * 40)), results, xis)
    many = comparison(tenants_of(40, tuple(map(str, range(40)))), results * 20, xis)
    for text in (few, many):
        assert max(map(len, text.splitlines())) <= 120
        assert all(f"above {xi:,}" in text for xi in xis)
    assert "a" * 40 in few
    assert "least of 40  median" in many


def test_a_table_too_wide_goes_on_below() -> None:
    wide = "x" * 60
    text = folded(("policy", wide, wide), [("lru", "1", "2")], keep=1)
    assert text.splitlines()[0].split() == ["policy", wide]
    assert [line.split() for line in text.splitlines() if line.startswith("lru")] == [
        ["lru", "1"],
        ["lru", "2"],
    ]


def tenants_of(requests: int, names: tuple[str, ...]) -> Trace:
    """A trace of that many requests of 1,000 tokens, each tenant in turn."""
    none, numbers = np.zeros(0, np.int32), np.arange(requests)
    return Trace(
        name="two",
        block_tokens=100,
        arrival=numbers.astype(float),
        prompt_tokens=np.full(requests, 1000),
        output_tokens=np.zeros(requests, np.int64),
        starts=np.zeros(requests + 1, np.int64),
        contents=none,
        known_tokens=np.zeros(requests, np.int64),
        parent=none,
        depth=none,
        previous=np.full(requests, -1, np.int32),
        think=np.full(requests, np.nan),
        tenant=(numbers % len(names)).astype(np.int32),
        tenants=names,
        final=np.ones(requests, np.bool_),
    )


def test_tenants_get_a_table_of_their_own() -> None:
    text = comparison(tenants_of(2, ("ann", "bob")), [result("prefix-lru", [500, 900])], [])
    assert "cached, of each tenant's prompt tokens" in text
    assert text.splitlines()[-3].split() == ["prefix-lru", "50.0", "%", "10.0", "%"]
    alone = comparison(tenants_of(2, ("all",)), [result("prefix-lru", [500, 900])], [])
    assert "tenant" not in alone


def test_ages_are_told_in_times() -> None:
    aged = result("prefix-lru", [500, 900])
    found = np.zeros(AGE_BINS, np.int64)
    found[11:13] = [9, 1]  # below 2 s, and below 4 s
    _, rows = ages([replace(aged, hit_age=found)])
    assert rows == [["prefix-lru", "", "", "2 s", "2 s", "", ""]]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress that shows after hundredths of seconds."""
    for name in ("PATIENCE_SECONDS", "TERMINAL_SECONDS", "PLAIN_SECONDS"):
        monkeypatch.setattr(f"evictune_policies.replay.console.progress.{name}", 0.02)


def shown(stream: io.StringIO) -> str:
    """What is shown of two steps, once the second has been seen."""
    progress = Progress(stream)
    with progress.over(2):
        progress.step("first")
        progress.step("second")
        deadline = time.monotonic() + 10
        while "second" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    return stream.getvalue()


@pytest.mark.usefixtures("impatient")
def test_progress_in_a_terminal_is_one_line_that_goes_away() -> None:
    text = shown(Terminal())
    assert "1/2  second" in text
    assert "\n" not in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.usefixtures("impatient")
def test_progress_elsewhere_is_plain_lines() -> None:
    text = shown(io.StringIO())
    assert "1/2  second" in text
    assert "\x1b" not in text
    assert text.endswith("\n")


def test_what_is_quick_says_nothing() -> None:
    stream = io.StringIO()
    with Progress(stream).over(1):
        pass
    assert stream.getvalue() == ""


def test_an_interrupt_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "table", interrupted)
    assert outcome(capsys, "policies") == (130, "", "")


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'numba'")

    monkeypatch.setattr(cli, "table", missing)
    code, _, err = outcome(capsys, "policies")
    assert code == 2
    assert "evictune-policies[replay]" in err
