"""For every test: a skip is a failure in CI, for it proved nothing; Ctrl-C is noticed; hypothesis
judges what is computed, not how long it takes."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.support.groups import GROUPS, GroupScheduling, group_of


def pytest_configure() -> None:
    """Processes under test must notice SIGINT.

    A shell starts background jobs with SIGINT ignored, children inherit that, and Ctrl-C would be
    tested in vain.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A limit of 200 ms an example says how busy the machine is.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest, one behaviour after another, begins first; nothing else moves."""
    items.sort(key=lambda item: group_of(item.nodeid) not in GROUPS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """With --dist loadfile, behaviours that share an engine or an installation stay together."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip into a failure where CI=true."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips nothing: {report.longrepr}"
