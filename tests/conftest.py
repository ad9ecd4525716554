"""For every test: a skip is a failure in CI, for it proved nothing; Ctrl-C is noticed."""

from __future__ import annotations

import os
import signal

import pytest


def pytest_configure() -> None:
    """Processes under test must notice SIGINT.

    A shell starts background jobs with SIGINT ignored, children inherit that, and Ctrl-C would be
    tested in vain.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With --dist loadgroup, what belongs to no group is distributed file by file."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip into a failure where CI=true."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips nothing: {report.longrepr}"
