"""The report: one self-contained HTML file, without scripts and without anything to fetch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from demo.constants import LOAD, OBJECTIVE, RULE
from demo.plots import WINDOW, figure_svg
from demo.record import Arm
from demo.summary import HEADER, Summary, rows, to_json


def write_report(summary: Summary, path: Path) -> None:
    """Write the HTML report."""
    environment = Environment(
        loader=PackageLoader("demo", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    path.write_text(
        environment.get_template("report.html.j2").render(
            summary=summary,
            figure=figure_svg(summary),
            header=HEADER,
            rows=rows(summary.comparisons),
            steps=_steps(summary.loop),
            window=WINDOW,
            load=LOAD,
            objective=OBJECTIVE,
            rule=RULE,
            constants=json.dumps(to_json(summary)["constants"], indent=2),
        )
    )


def _steps(loop: Arm) -> list[dict[str, Any]]:
    """The loop's steps with seconds since the arm's first request, and where they fell."""
    if not loop.outcomes:
        return []
    begin = loop.outcomes[0].answer.started
    return [
        {
            "number": number,
            "seconds": step.time - begin,
            "position": loop.position(step.time),
            "reason": step.reason,
            "message": step.message,
        }
        for number, step in enumerate(loop.steps, start=1)
    ]
