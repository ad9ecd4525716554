"""Increases of counters that restart, hide and come back."""

from __future__ import annotations

from evictune.observe.history import History
from evictune.observe.rates import Scrape, increases


def scrapes(*pages: dict[str, float]) -> list[Scrape[str]]:
    return [Scrape(float(time), page) for time, page in enumerate(pages)]


def test_one_counter_that_fell_tells_that_the_whole_page_restarted() -> None:
    grown = increases(scrapes({"few": 3, "many": 100}, {"few": 5, "many": 7}))
    assert grown == {"few": 5, "many": 7}


def test_a_process_that_restarts_does_not_take_the_others_with_it() -> None:
    pages = scrapes({"0/a": 50, "1/a": 100}, {"0/a": 60, "1/a": 4})
    assert increases(pages, process=lambda key: key[0]) == {"0/a": 10, "1/a": 4}


def test_a_counter_that_hides_for_a_scrape_is_not_counted_anew() -> None:
    pages = scrapes({"a": 1, "b": 500}, {"a": 2}, {"a": 3, "b": 510})
    assert increases(pages) == {"a": 2, "b": 10}


def test_a_counter_that_comes_into_sight_counts_from_then_on() -> None:
    assert increases(scrapes({"a": 1}, {"a": 2, "b": 500}, {"a": 3, "b": 510})) == {"a": 2, "b": 10}


def test_no_scrape_has_no_increase() -> None:
    assert increases([]) == {}


def test_a_history_keeps_two_windows_and_no_finer_steps_than_needed() -> None:
    history: History[str] = History()
    for step in range(10_000):
        history.add(Scrape(step * 0.01, {"a": float(step)}), window=10.0)
    assert len(history) <= 2 * 500 + 2
    seen = history.within(now=99.99, window=10.0)
    assert 10.0 <= seen[-1].time - seen[0].time <= 10.1
    assert increases(seen)["a"] == seen[-1].counters["a"] - seen[0].counters["a"]
