"""JSON Schema of what `--output json` prints: docs/reference/output.schema.json is made from it."""

from __future__ import annotations

from typing import Any

from evictune.api.status_schema import status_schema
from evictune.console.documents import schema_name
from evictune.console.subjects import Source

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def output_schema() -> Schema:
    """Of every command that prints JSON: one of the answers."""
    return {
        "$schema": DIALECT,
        "title": "What evictune prints with --output json",
        "oneOf": [_answer(command, item) for command, item in _items().items()],
    }


def _items() -> dict[str, Schema]:
    switched = {
        "changed": _typed("boolean", "False where it was so already: nothing was written."),
        "follows": _list(_typed("string", "A sentence."), "What happens now."),
    }
    return {
        "explain": _object(_explain()),
        "history": _object(_history(), optional=("transitions",)),
        "diff": _object(_diff()),
        "suspend": _object(_head() | switched),
        "resume": _object(_head() | switched),
    }


def _answer(command: str, item: Schema) -> Schema:
    return _object(
        {
            "schema": {"const": schema_name(command), "description": "Which shape this is."},
            "items": _list(item, "One a policy, by namespace and name."),
        },
        description=f"evictune {command}",
    )


def _head() -> dict[str, Schema]:
    return {
        "namespace": _typed("string", "The policy's namespace."),
        "name": _typed("string", "The policy's name."),
        "target": _object(
            {
                "kind": _nullable("string", "Deployment or StatefulSet."),
                "name": _nullable("string", "Its name."),
            },
            description="spec.targetRef.",
        ),
        "mode": _nullable("string", "spec.mode."),
        "suspended": _typed("boolean", "spec.suspend."),
    }


def _explain() -> dict[str, Schema]:
    diagnosis = _object(
        {
            **_status("regime")["properties"],
            "meaning": _typed("string", "What the regime means."),
            "remedy": _typed("string", "What would help; empty where nothing need be done."),
        },
        optional=("message",),
        description="What the engines are doing.",
    )
    condition = _status("conditions")["items"]
    remedy = {"remedy": _typed("string", "What to do about it; empty where it holds.")}
    told = condition | {"properties": condition["properties"] | remedy}
    return {
        **_head(),
        "problem": _nullable("string", "Why the spec cannot be followed: field, value, remedy."),
        "objective": {"type": ["object", "null"], "description": "spec.slo.ttft."},
        "diagnosis": _or_null(diagnosis),
        "observed": _or_null(_status("observed")),
        "engines": _or_null(_status("engines")),
        "inForce": _in_force(),
        "pending": _or_null(_status("pending")),
        "recommendation": _or_null(_status("recommendation")),
        "holds": _status("holds"),
        "conditions": _list(told, "status.conditions, each with its remedy."),
        "decisions": _status("decisions"),
        "quarantine": _status("quarantine"),
    }


def _history() -> dict[str, Schema]:
    change = _object(
        {
            "decisionID": _typed("string", "The decision's identity."),
            "time": _time("When it was decided."),
            "from": _or_null(_values("The values before.")),
            "to": _or_null(_values("The values after, or wanted.")),
            "verdict": _typed(
                "string",
                "Kept, NoDifference, Inconclusive, Reverted or Abandoned; UnderWay; Untold where "
                "its end is no longer among the transitions kept; for a note its reason, such as "
                "Recommended.",
            ),
            "why": _typed("string", "What it was decided for; empty where no longer known."),
            "told": _typed("string", "The verdict in words."),
            "ended": _or_null(_time("When it ended; null: under way or unknown.")),
            "restoredBy": _nullable("string", "The decision that takes it back."),
        }
    )
    return {
        **_head(),
        "changes": _list(change, "Oldest first."),
        "transitions": _status("decisions"),
    }


def _diff() -> dict[str, Schema]:
    hold = {
        "reason": _typed("string", "One word; docs/regimes.md explains each."),
        "message": _typed("string", "In words."),
    }
    return {
        **_head(),
        "differs": _typed("boolean", "Whether something else is recommended than is in force."),
        "inForce": _in_force(),
        "recommended": _or_null(_values("Within the bounds of spec.knobs.")),
        "withoutBounds": _or_null(_values("Without them.")),
        "basis": _nullable("string", "Why it is recommended."),
        "notSet": _or_null(_object(hold, description="What keeps it from being set.")),
    }


def _in_force() -> Schema:
    return _object(
        {
            "source": {
                "enum": [str(each) for each in Source],
                "description": "Document: the knob document. Expired, None: there is none that "
                "counts, so stock LRU. Status: the document may not be read; by status alone.",
            },
            "values": _values("What the engines are told to follow."),
            "revision": _nullable("integer", "Of the knob document."),
            "expires": _or_null(_time("When the engines stop following it, unless renewed.")),
            "changedBy": _nullable("string", "The field manager that edited the document."),
        },
        description="What the engines are told to follow.",
    )


def _values(description: str) -> Schema:
    return _object(
        {
            "policy": {"enum": ["lru", "t-lru"], "description": "The order of eviction."},
            "xiTokens": _nullable("integer", "xi in tokens."),
            "qHatTokens": _nullable("integer", "qHat in tokens."),
            "gpuMemoryUtilization": _nullable(
                "string", "The memory fraction; null: each manifest's own."
            ),
        },
        description=description,
    )


def _status(name: str) -> Schema:
    """The schema of a field of status, as the API server has it."""
    found: Schema = status_schema()["properties"][name]
    return found


def _object(
    properties: dict[str, Schema], optional: tuple[str, ...] = (), description: str = ""
) -> Schema:
    schema: Schema = {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
    }
    return {"description": description, **schema} if description else schema


def _list(items: Schema, description: str) -> Schema:
    return {"type": "array", "description": description, "items": items}


def _typed(kind: str, description: str) -> Schema:
    return {"type": kind, "description": description}


def _nullable(kind: str, description: str) -> Schema:
    return {"type": [kind, "null"], "description": description}


def _time(description: str) -> Schema:
    return {"type": "string", "format": "date-time", "description": description}


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [{"type": "null"}, schema]}
