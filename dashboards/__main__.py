"""`python -m dashboards [--check]`: write the dashboards' JSON, the same bytes every time.

They lie in the operator's distribution, where `evictune dashboards` finds them; the chart gets
copies (scripts/chart_files.py). Run from the root of the repository. With --check nothing is
written: files that are not current are named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import engine, fleet, operator, policy

DIRECTORY = Path("operator/evictune/dashboards")
# The version of Grafana whose models the SDK has: panels are migrated from there.
_VERSION = "10.1.0"


def generated() -> Mapping[str, str]:
    """File name -> text, in the order in which people read them."""
    made = {
        "fleet": fleet.dashboard(),
        "policy": policy.dashboard(),
        "engine": engine.dashboard(),
        "operator": operator.dashboard(),
    }
    return {f"{name}.json": _text(each) for name, each in made.items()}


def _text(dashboard: Dashboard) -> str:
    body: dict[str, Any] = json.loads(JSONEncoder().encode(dashboard.build()))
    for number, panel in enumerate(body["panels"], start=1):
        panel["id"] = number
        if panel["type"] != "row":
            panel["pluginVersion"] = _VERSION
            panel["options"] = panel["options"] or {}
    return json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def stale(directory: Path) -> list[Path]:
    """Files that are missing, not current, or of no dashboard any more."""
    texts = generated()
    old = [
        directory / name
        for name, text in texts.items()
        if not (directory / name).is_file() or (directory / name).read_text("utf-8") != text
    ]
    return [*old, *(each for each in directory.glob("*.json") if each.name not in texts)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if not current")
    options = parser.parse_args(arguments)
    files = stale(DIRECTORY)
    if options.check:
        for path in files:
            print(f"{path} is not current: run `make generate`", file=sys.stderr)
        return 1 if files else 0
    texts = generated()
    DIRECTORY.mkdir(exist_ok=True)
    for path in files:
        if path.name in texts:
            path.write_text(texts[path.name], "utf-8")
        else:
            path.unlink()
        print(f"{'wrote' if path.name in texts else 'removed'} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
