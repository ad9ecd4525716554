"""The plugin's series: their names, one port for all ranks, and what happens when it is taken."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest
from evictune_policies.engine.metrics import (
    MetricsPort,
    Report,
    ReportDirectory,
    SettingError,
    parse_address,
)
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
REPORT = Report(
    engine="0",
    policy="t-lru",
    xi_tokens=512,
    q_hat_tokens=200,
    revision=7,
    evicted={"lru": 3, "tel-safe": 20, "protected": 1},
    recomputed_tokens=12_000,
    change_seconds=0.25,
    changes=2,
    refused={"Malformed": 1},
    refusal=("Malformed", 'not JSON: "'),
)


@pytest.fixture
def address() -> str:
    """A loopback address of this test's own, with a port that is free now."""
    host = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250 + 1}.9"
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def scrape(address: str) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def engines(address: str) -> set[str]:
    return {
        dict(labels)["engine"] for name, labels in scrape(address) if name == "evictune_policy_info"
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "did not come true within 30 s"
        time.sleep(0.05)


def test_series_are_those_of_the_contract(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # vLLM sets this for its own metrics; the plugin's must not notice.
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "multiprocess"))
    port = MetricsPort(address, lambda: REPORT, ReportDirectory("key", tmp_path))
    port.tick()
    info = labels(policy="t-lru", xi_tokens="512", q_hat_tokens="200", revision="7", engine="0")
    assert scrape(address) == {
        ("evictune_policy_info", info): 1,
        ("evictune_engine_eligible", labels(engine="0", reason="")): 1,
        ("evictune_evicted_blocks_total", labels(engine="0", region="lru")): 3,
        ("evictune_evicted_blocks_total", labels(engine="0", region="tel-safe")): 20,
        ("evictune_evicted_blocks_total", labels(engine="0", region="protected")): 1,
        ("evictune_recomputed_tokens_total", labels(engine="0")): 12_000,
        ("evictune_knob_change_seconds_count", labels(engine="0")): 2,
        ("evictune_knob_change_seconds_sum", labels(engine="0")): 0.25,
        ("evictune_refused_documents_total", labels(engine="0", reason="Malformed")): 1,
        (
            "evictune_refused_document_info",
            labels(engine="0", reason="Malformed", message='not JSON: "'),
        ): 1,
    }


def test_stock_lru_has_empty_token_counts_and_ineligible_a_reason(
    address: str, tmp_path: Path
) -> None:
    report = Report("1", "lru", None, None, revision=0, ineligible="PrefixCachingDisabled")
    MetricsPort(address, lambda: report, ReportDirectory("key", tmp_path)).tick()
    series = scrape(address)
    info = labels(policy="lru", xi_tokens="", q_hat_tokens="", revision="0", engine="1")
    assert series["evictune_policy_info", info] == 1
    reason = labels(engine="1", reason="PrefixCachingDisabled")
    assert series["evictune_engine_eligible", reason] == 0


def test_port_taken_is_told_once_and_taken_over_when_it_is_free(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, number = parse_address(address)
    port = MetricsPort(address, lambda: REPORT, ReportDirectory("key", tmp_path))
    with socket.create_server((host, number)):
        for _ in range(3):
            port.tick()
        assert not port.serving
        assert len([r for r in caplog.records if address in r.getMessage()]) == 1
    port.tick()
    assert engines(address) == {"0"}


def test_directory_that_cannot_be_written_is_told_and_the_port_still_tried(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, number = parse_address(address)
    port = MetricsPort(address, lambda: REPORT, ReportDirectory("key", tmp_path / "missing"))
    with socket.create_server((host, number)):
        for _ in range(3):
            port.tick()
        assert len([r for r in caplog.records if "to the serving process" in r.getMessage()]) == 1
    port.tick()
    assert port.serving


@pytest.fixture
def rank(address: str, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    with ExitStack() as processes:

        def start(engine: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "tests.support.metrics_rank", engine, address]
            process = subprocess.Popen(
                [*command, str(tmp_path)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            processes.callback(process.wait)
            processes.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process

        yield start


def test_ranks_share_a_port_and_the_next_takes_over(
    address: str, rank: Callable[[str], subprocess.Popen[str]]
) -> None:
    first = rank("0")
    second = rank("1")
    rank("2")
    eventually(lambda: engines(address) == {"0", "1", "2"})
    second.kill()
    second.wait()
    eventually(lambda: engines(address) == {"0", "2"})
    first.kill()
    first.wait()

    def only_the_third() -> bool:
        try:
            return engines(address) == {"2"}
        except OSError:
            return False

    eventually(only_the_third)


def test_reports_of_dead_and_of_silent_processes_are_ignored(tmp_path: Path) -> None:
    now = time.time()
    directory = ReportDirectory("key", tmp_path, clock=lambda: now)
    directory.put(REPORT)
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    text = json.dumps(asdict(REPORT))
    (directory.path / f"{finished.pid}.json").write_text(text)
    parent = directory.path / f"{os.getppid()}.json"
    parent.write_text(text)
    assert [report.engine for report in directory.others()] == ["0"]
    assert not (directory.path / f"{finished.pid}.json").exists()
    now += 11
    assert list(directory.others()) == []


@pytest.mark.parametrize("garbage", ["", "[]", '{"engine": "0"}', '{"what": 1}'])
def test_garbage_in_the_directory_is_ignored(tmp_path: Path, garbage: str) -> None:
    directory = ReportDirectory("key", tmp_path)
    directory.put(REPORT)
    (directory.path / f"{os.getppid()}.json").write_text(garbage)
    (directory.path / "notes.json").write_text(garbage)
    assert list(directory.others()) == []


def test_two_reports_for_one_engine_make_one_series(address: str, tmp_path: Path) -> None:
    directory = ReportDirectory("key", tmp_path)
    directory.put(REPORT)
    (directory.path / f"{os.getppid()}.json").write_text(json.dumps(asdict(REPORT)))
    MetricsPort(address, lambda: REPORT, directory).tick()
    assert engines(address) == {"0"}


@pytest.mark.parametrize("address", ["9410", ":9410", "host:", "host:port", "host:0", "h:70000"])
def test_unusable_address_names_the_setting(address: str) -> None:
    with pytest.raises(SettingError, match="EVICTUNE_METRICS_ADDRESS is"):
        parse_address(address)


def test_ipv6_address_stands_in_brackets() -> None:
    assert parse_address("[::1]:9410") == ("::1", 9410)
