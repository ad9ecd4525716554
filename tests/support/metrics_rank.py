"""One engine rank as a process: ``python -m tests.support.metrics_rank ENGINE ADDRESS PARENT``."""

import sys
import time
from pathlib import Path

from evictune_policies.engine.metrics import MetricsPort, Report, ReportDirectory


def main(engine: str, address: str, parent: str) -> None:
    report = Report(engine, "t-lru", 512, 200, revision=7)
    port = MetricsPort(address, lambda: report, ReportDirectory(address, Path(parent)))
    while True:
        port.tick()
        print("serving" if port.serving else "waiting", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
