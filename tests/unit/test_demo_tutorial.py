"""What the tutorial's readers are given: an endless load, and words about it."""

from __future__ import annotations

from difflib import ndiff
from itertools import islice
from pathlib import Path

import pytest
from evictune.wiring import Wiring, dump, wire

from demo import tutorial
from demo.load import Answer, Kind, Request, sequence
from demo.manifests import deployment
from demo.record import Outcome


def outcomes(seconds_per_token: float, lost: int) -> list[Outcome]:
    """Three rounds of a load in which each turn computes `lost` tokens."""
    load = tutorial.endless(3)
    found = []
    for request in islice(sequence(load), 63):
        prompt = len(request.prompt)
        uncached = min(lost, prompt) if request.kind is Kind.TURN else prompt
        ttft = uncached * seconds_per_token
        found.append(Outcome(request, Answer(0.0, ttft, ttft + 0.01, prompt, prompt - uncached)))
    return found


def test_the_load_never_ends_and_never_shifts() -> None:
    first: list[Request] = list(islice(sequence(tutorial.endless(3)), 63))
    assert {request.conversation for request in first} == {-1, 0, 1, 2}
    assert sum(request.kind is Kind.TURN for request in first) == 9
    with pytest.raises(SystemExit):
        tutorial.main(["load", "--conversations", "0"])


def test_wiring_adds_lines_to_the_manifest_and_changes_none() -> None:
    """The reader looks at the difference."""
    manifest = dump(deployment(Path("/model")))
    changes = list(ndiff(manifest.splitlines(), wire(manifest, Wiring()).splitlines()))
    assert {line[0] for line in changes} == {" ", "+"}
    assert any("EVICTUNE_KNOBS_DIR" in line for line in changes)


def test_a_round_is_told_in_a_line() -> None:
    line = tutorial.told(7, outcomes(0.0003, 1500))
    assert line.startswith("round   7: TTFT p50   60 ms, p97   450 ms; hit ratio ")
    assert line.endswith("uncached tokens p97 1,500")


def test_the_threshold_is_what_450_tokens_take_on_this_machine() -> None:
    assert "450 uncached tokens take about 135ms" in tutorial.suggestion(outcomes(0.0003, 1500))
    assert "take about 450ms" in tutorial.suggestion(outcomes(0.001, 1500))


def test_without_an_engine_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    assert tutorial.main(["load"]) == 1
    assert "Is KUBECONFIG set?" in capsys.readouterr().err
