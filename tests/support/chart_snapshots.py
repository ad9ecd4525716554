"""What Helm makes of the chart for kept sets of values: tests/data/chart/NAME.values.yaml.

`python -m tests.support.chart_snapshots` (`make snapshots`) writes NAME.yaml anew; look at the
difference before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from localcluster.binaries import version
from tests.support.helm import CHART, helm

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/chart"
SUFFIX = ".values.yaml"
PROMETHEUS_OPERATOR = (
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
)
# Compared with their originals elsewhere; they would change these files with every panel.
_COPIES = ("templates/crd.yaml", "templates/dashboards.yaml", "templates/prometheusrules.yaml")
_SOURCE = "# Source: evictune/"


def names() -> list[str]:
    """The kept sets of values."""
    return sorted(path.name.removesuffix(SUFFIX) for path in DATA.glob(f"*{SUFFIX}"))


def template(
    values: Path, chart: Path = CHART, kinds: tuple[str, ...] = PROMETHEUS_OPERATOR
) -> str:
    """`helm template` on a cluster that knows `kinds`. Raises HelmError."""
    command = ["template", "release", str(chart), "--namespace", "operators"]
    command += ["--kube-version", version("kube-apiserver"), "--values", str(values)]
    command += [word for kind in kinds for word in ("--api-versions", kind)]
    return helm(*command)


def snapshot(name: str) -> str:
    """The manifests of a set of values, without what is only copied.

    Helm 4 writes an empty line behind a document, Helm 3 does not.
    """
    documents = template(DATA / f"{name}{SUFFIX}").split("---\n")
    copied = tuple(_SOURCE + path for path in _COPIES)
    kept = (each.rstrip() for each in documents if not each.startswith(copied))
    return "---\n".join(f"{each}\n" if each else "" for each in kept)


def main() -> int:
    """Write every snapshot."""
    for name in names():
        (DATA / f"{name}.yaml").write_text(snapshot(name), "utf-8")
        print(f"wrote tests/data/chart/{name}.yaml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
