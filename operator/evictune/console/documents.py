"""The answers as JSON: stable shapes, described by the schemas in `evictune.console.shapes`.

Every answer is `{"schema": "evictune.io/COMMAND/v1", "items": [...]}`, one item a policy. Fields
may be added; none is renamed or removed within v1. Times are RFC 3339, values null where unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evictune.api.knobs import KnobValues
from evictune.api.quantity import format_fraction
from evictune.api.reasons import REASONS
from evictune.api.times import format_time
from evictune.console.difference import differs, holding
from evictune.console.explain import remedy_of
from evictune.console.history import Entry, entries_of
from evictune.console.subjects import Subject
from evictune.console.suspension import Switched

Json = dict[str, Any]


def document(command: str, items: Sequence[Json]) -> Json:
    """The answer of a command."""
    return {"schema": schema_name(command), "items": list(items)}


def schema_name(command: str) -> str:
    """What the field `schema` of a command's answer says."""
    return f"evictune.io/{command}/v1"


def explain_item(subject: Subject, now: float) -> Json:
    """What was seen, believed and decided."""
    status = subject.status
    conditions = status.get("conditions") or ()
    return {
        **_head(subject),
        "problem": subject.problem or None,
        "objective": (subject.spec.get("slo") or {}).get("ttft"),
        "diagnosis": _diagnosis(status.get("regime")),
        "observed": status.get("observed"),
        "engines": status.get("engines"),
        "inForce": _in_force(subject, now),
        "pending": status.get("pending"),
        "recommendation": status.get("recommendation"),
        "holds": list(status.get("holds") or ()),
        "conditions": [{**each, "remedy": remedy_of(each)} for each in conditions],
        "decisions": list(status.get("decisions") or ()),
        "quarantine": list(status.get("quarantine") or ()),
    }


def history_item(subject: Subject, *, steps: bool) -> Json:
    """Changes with their verdicts, oldest first; with `steps` the transitions too."""
    entries = [_entry(each) for each in entries_of(subject.memory)]
    told = {"transitions": list(subject.status.get("decisions") or ())} if steps else {}
    return {**_head(subject), "changes": entries, **told}


def diff_item(subject: Subject, now: float) -> Json:
    """What is recommended against what is in force."""
    wanted, hold = subject.memory.recommendation, holding(subject, now)
    return {
        **_head(subject),
        "differs": differs(subject, now),
        "inForce": _in_force(subject, now),
        "recommended": _values(wanted.target) if wanted else None,
        "withoutBounds": _values(wanted.uncapped) if wanted else None,
        "basis": wanted.basis if wanted else None,
        "notSet": {"reason": str(hold[0]), "message": hold[1]} if wanted and hold else None,
    }


def switch_item(switched: Switched) -> Json:
    """What suspend or resume did."""
    return {
        **_head(switched.subject),
        "suspended": switched.suspended,
        "changed": switched.changed,
        "follows": list(switched.follows),
    }


def _head(subject: Subject) -> Json:
    target = subject.spec.get("targetRef") or {}
    return {
        "namespace": subject.namespace,
        "name": subject.name,
        "target": {"kind": target.get("kind"), "name": target.get("name")},
        "mode": subject.spec.get("mode"),
        "suspended": bool(subject.spec.get("suspend")),
    }


def _diagnosis(regime: Json | None) -> Json | None:
    if not regime:
        return None
    reason = REASONS.get(str(regime.get("name")))
    remedy = reason.remedy if reason else ""
    return {**regime, "meaning": reason.meaning if reason else "", "remedy": remedy}


def _in_force(subject: Subject, now: float) -> Json:
    found = subject.in_force(now)
    return {
        "source": str(found.source),
        "values": _values(found.values),
        "revision": found.revision,
        "expires": None if found.expires is None else format_time(found.expires),
        "changedBy": subject.stored.foreign_manager or None,
    }


def _values(values: KnobValues) -> Json:
    fraction = values.fraction
    return {
        "policy": "lru" if values.stock else "t-lru",
        "xiTokens": values.xi_tokens,
        "qHatTokens": values.q_hat_tokens,
        "gpuMemoryUtilization": None if fraction is None else format_fraction(fraction),
    }


def _entry(entry: Entry) -> Json:
    return {
        "decisionID": entry.decision_id,
        "time": format_time(entry.time),
        "from": _values(entry.change_from) if entry.change_from else None,
        "to": _values(entry.change_to) if entry.change_to else None,
        "verdict": entry.verdict,
        "why": entry.why,
        "told": entry.told,
        "ended": None if entry.ended is None else format_time(entry.ended),
        "restoredBy": entry.restored_by or None,
    }
