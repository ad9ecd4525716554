"""Which traffic is alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evictune.api.observation import Idle
from evictune.decide.traffic import alike, fingerprint

from tests.support.situations import make_engine, make_policy, observe, ttft


def test_the_fingerprint_names_rate_and_length() -> None:
    observation = observe(ttft=ttft(0.6, requests=396.0))
    assert (
        fingerprint(make_policy(), observation) == "6.60 requests/s per engine, 420 tokens a prompt"
    )


def test_what_is_unknown_is_a_question_mark() -> None:
    observation = observe(ttft=Idle(), prompt_tokens_per_request=Idle())
    assert fingerprint(make_policy(), observation) == "? requests/s per engine, ? tokens a prompt"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            "6.60 requests/s per engine, 420 tokens a prompt",
            "12.5 requests/s per engine, 460 tokens a prompt",
            True,
        ),
        (
            "6.60 requests/s per engine, 420 tokens a prompt",
            "30 requests/s per engine, 420 tokens a prompt",
            False,
        ),
        (
            "6.60 requests/s per engine, 420 tokens a prompt",
            "6.60 requests/s per engine, 700 tokens a prompt",
            False,
        ),
        (
            "6.60 requests/s per engine, 420 tokens a prompt",
            "? requests/s per engine, 420 tokens a prompt",
            True,
        ),
        ("written by another version", "6.60 requests/s per engine, 420 tokens a prompt", True),
    ],
)
def test_alike(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same
    assert alike(other, one) is same


def test_a_rate_is_of_the_time_observed_and_of_one_engine() -> None:
    """After a start the window is not yet full; twice the replicas serve twice the requests."""
    half = replace(ttft(0.6, requests=198.0), seconds=30.0)
    assert fingerprint(make_policy(), observe(ttft=half)).startswith("6.60 requests/s")
    two = observe(ttft=ttft(0.6, requests=396.0), engines=(make_engine(), make_engine(engine="1")))
    assert fingerprint(make_policy(), two).startswith("3.30 requests/s")
