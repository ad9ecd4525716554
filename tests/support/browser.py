"""A real Chromium without a window, the one of the distribution, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import ConsoleMessage, Page, sync_playwright

WIDTH, HEIGHT = 1480, 900


@dataclass
class Opened:
    """A page. complaints: of its scripts; requests: every address that it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def heard(self, message: ConsoleMessage) -> None:
        """A line on the console."""
        if message.type in ("error", "assert"):
            self.complaints.append(message.text)


@contextmanager
def opened(url: str) -> Iterator[Opened]:
    """The address in a new browser, loaded."""
    binary = shutil.which("chromium")
    assert binary, "chromium is not on the PATH: apt-get install --yes chromium"
    with sync_playwright() as playwright:
        # root has no sandbox.
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            found = Opened(page)
            page.on("console", found.heard)
            page.on("pageerror", lambda error: found.complaints.append(str(error)))
            page.on("request", lambda request: found.requests.append(request.url))
            page.goto(url)
            yield found
        finally:
            browser.close()
