"""The dashboards of a real run: vLLM, plugin, operator and Prometheus as they are, in Chromium."""

from __future__ import annotations

import math

import pytest
from evictune import cli
from evictune.api.times import format_time, parse_time

from tests.support.browser import opened
from tests.support.dashboard_page import PICTURES, cut_off, drawn, overlapping, pictures
from tests.support.loop import POLICY, Pace, ensure_in_force
from tests.support.stack import SCRAPE_INTERVAL, Stack

pytestmark = pytest.mark.timeout(1800)

REAL = PICTURES / "real"
# When the operator was last scraped that knew a TTFT and had kept a xi.
BUSY = """max(max_over_time((
  timestamp(evictune_reading{reading="ttft_seconds"}) and on () evictune_applied_tokens{knob="xi"}
)[1d:1s]))"""
MAY_BE_EMPTY = {
    "engine: Knob documents refused now",
    # Where the TTFT's interval holds the threshold nobody knows.
    "policy: Objectives",
    # And where it does not, nothing is amiss.
    "fleet: Conditions that are not True",
}


def test_every_panel_shows_something_of_the_run(
    stack: Stack, pace: Pace, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the policy's first second until its engine was last busy, with a xi in force."""
    ensure_in_force(stack, pace)
    born = parse_time(stack.objects().get("evp", POLICY)["metadata"]["creationTimestamp"])
    busy = math.ceil(float(stack.prometheus.query(BUSY)[0]["value"][1]))
    REAL.mkdir(parents=True, exist_ok=True)
    out = REAL / "preview.html"
    asked = ["dashboards", "preview", "--prometheus", stack.prometheus.url, "--out", str(out)]
    asked += ["--end", format_time(busy), "--last", f"{busy - born:.0f}s"]
    # A query that is refused makes it fail.
    assert cli.main([*asked, "--scrape-interval", SCRAPE_INTERVAL]) == 0
    told = capsys.readouterr().out
    with opened(out.as_uri()) as page:
        files = list(pictures(page, REAL))
        panels = drawn(page)
        assert {title for title, well in panels.items() if not well} <= MAY_BE_EMPTY, told
        assert cut_off(page) == []
        assert overlapping(page) == []
    assert all(file.stat().st_size > 20_000 for file in files)
