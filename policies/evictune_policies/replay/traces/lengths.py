"""Traces of lengths alone, CSV with a header, such as Azure's (AzurePublicDataset, LLM inference).

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:15:46.6805900,374,44

The time is a date and time, or seconds as a number. Nothing says what the prompts have in common,
so their blocks are unknown and nothing can be hit: `LENGTHS_ONLY`.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from evictune_policies.replay.traces.assemble import Records, assemble
from evictune_policies.replay.traces.assumptions import DEFAULTS, Assumptions
from evictune_policies.replay.traces.files import MAX_INTEGER, lines, refuse
from evictune_policies.replay.traces.trace import Trace

LENGTHS_ONLY = (
    "This trace has lengths and no contents. It tells the load, how long prompts are, and how many "
    "exceed xi if nothing is hit; not what a cache would hit, nor which policy is better: every "
    "policy looks the same on it."
)

_COLUMNS = {
    "arrival": ("timestamp", "arrival", "time"),
    "prompt_tokens": ("contexttokens", "prompttokens", "inputtokens", "inputlength"),
    "output_tokens": ("generatedtokens", "outputtokens", "outputlength"),
}


def read(path: Path, assumptions: Assumptions = DEFAULTS) -> Trace:
    """Read a trace of lengths. Raises TraceError."""
    repairs: Counter[str] = Counter()
    records = Records(path, assumptions.block_tokens, repairs=repairs)
    place: dict[str, int] | None = None
    for number, line, complete in lines(path, repairs):
        fields = [field.strip() for field in line.decode("utf-8", "replace").split(",")]
        if place is None:
            place = _places(path, fields)
            continue
        try:
            arrival, prompt, output = _row(path, number, fields, place)
        except ValueError:
            if complete:
                raise
            repairs["truncated"] += 1
            continue
        records.add(arrival, prompt, output, (), ids_of_output=True, line=number)
    return assemble(records, name=path.name, chronological=True)


def _places(path: Path, header: list[str]) -> dict[str, int]:
    """Which column is which."""
    names = ["".join(filter(str.isalnum, name)).lower() for name in header]
    places = {}
    for column, accepted in _COLUMNS.items():
        found = [names.index(name) for name in accepted if name in names]
        if not found:
            raise refuse(
                path,
                f"has no column {accepted[0]}",
                "the first line has to name TIMESTAMP, ContextTokens and GeneratedTokens",
                line=1,
                field="header",
                value=",".join(header),
            )
        places[column] = found[0]
    return places


def _row(
    path: Path, number: int, fields: list[str], places: dict[str, int]
) -> tuple[float, int, int]:
    if len(fields) <= max(places.values()):
        raise refuse(
            path, f"{len(fields)} columns are too few", "complete it or take it out", line=number
        )
    tokens = []
    for column in ("prompt_tokens", "output_tokens"):
        text = fields[places[column]]
        try:
            tokens.append(int(text))
            if abs(tokens[-1]) > MAX_INTEGER:
                raise ValueError
        except ValueError:
            raise refuse(
                path,
                "is not a whole number of tokens",
                "correct the line or take it out",
                line=number,
                field=_COLUMNS[column][0],
                value=text,
            ) from None
    return _seconds(path, number, fields[places["arrival"]]), tokens[0], tokens[1]


def _seconds(path: Path, number: int, text: str) -> float:
    """A time in seconds; without a zone it is UTC. Digits beyond microseconds do not count."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = _date(text)
        except ValueError:
            seconds = math.nan
    if math.isfinite(seconds):
        return seconds
    raise refuse(
        path,
        "is neither a date and time nor a number of seconds",
        "write it as 2023-11-16 18:15:46.680590",
        line=number,
        field="timestamp",
        value=text,
    )


def _date(text: str) -> float:
    date = datetime.fromisoformat(text)  # takes digits beyond microseconds and drops them
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
