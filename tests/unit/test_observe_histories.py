"""What is kept of pages: as long as somebody asks about them."""

from __future__ import annotations

from evictune.observe.history import Histories
from evictune.observe.rates import Scrape
from evictune.observe.snapshot import PodKey

POD, WINDOW = PodKey("team", "chat-0"), 300.0


def test_a_history_goes_when_nobody_asked_for_several_windows() -> None:
    histories: Histories[str] = Histories()
    kept = histories.of(POD, "uid", WINDOW)
    kept.add(Scrape(1000.0, {"hits": 1.0}), WINDOW)
    histories.forget(1000.0 + 3 * WINDOW)
    assert histories.of(POD, "uid", WINDOW) is kept
    histories.forget(1000.0 + 5 * WINDOW)
    assert histories.of(POD, "uid", WINDOW) is not kept


def test_the_ticks_of_many_policies_look_once_a_minute_for_what_to_forget() -> None:
    histories: Histories[str] = Histories()
    histories.forget(1000.0)
    kept = histories.of(POD, "uid", WINDOW)
    kept.add(Scrape(1000.0 - 10 * WINDOW, {"hits": 1.0}), WINDOW)
    histories.forget(1059.0)
    assert histories.of(POD, "uid", WINDOW) is kept
    histories.forget(1061.0)
    assert histories.of(POD, "uid", WINDOW) is not kept
