"""The loop of the plugin's watcher threads: a look every second, whatever goes wrong in one."""

import logging
import time
from collections.abc import Callable
from typing import NoReturn

POLL_SECONDS = 1.0


def watch(look: Callable[[], None], name: str, logger: logging.Logger) -> NoReturn:
    """Look every second; a failure is told once for as long as it stays the same."""
    trouble = ""
    while True:
        try:
            look()
        except Exception as error:  # whatever it is, the engine must go on
            if repr(error) != trouble:
                trouble = repr(error)
                logger.exception("The plugin's %s failed; trying again every second", name)
        time.sleep(POLL_SECONDS)
