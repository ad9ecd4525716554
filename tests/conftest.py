"""For every test: a skip is a failure in CI, for it proved nothing; Ctrl-C is noticed."""

from __future__ import annotations

import os
import signal

import pytest
from xdist.remote import Producer

from tests.support.groups import GroupScheduling


def pytest_configure() -> None:
    """Processes under test must notice SIGINT.

    A shell starts background jobs with SIGINT ignored, children inherit that, and Ctrl-C would be
    tested in vain.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
