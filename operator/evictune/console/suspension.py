"""`evictune suspend` and `evictune resume`: set spec.suspend, and say what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evictune.api.decision import Pending, Phase
from evictune.api.policy import Mode
from evictune.api.reasons import Reason
from evictune.console.paper import Paper
from evictune.console.subjects import Source, Subject
from evictune.decide.situation import sentence, show
from evictune.kube import MERGE_PATCH, KubeApi, policies_path

MANAGER = "evictune-cli"


@dataclass(frozen=True)
class Switched:
    """A policy after the command. changed: False where it was as wanted already.

    follows: what happens now, a sentence each.
    """

    subject: Subject
    suspended: bool
    changed: bool
    follows: tuple[str, ...]


def switch(api: KubeApi, subject: Subject, suspend: bool, now: float) -> Switched:
    """Set spec.suspend where it is not so yet. `now`: seconds since the epoch. Raises ApiError."""
    changed = bool(subject.spec.get("suspend")) is not suspend
    if changed:
        api.request(
            "PATCH",
            f"{policies_path(subject.namespace)}/{subject.name}",
            body={"spec": {"suspend": suspend}},
            content_type=MERGE_PATCH,
            query={"fieldManager": MANAGER},
        )
    return Switched(subject, suspend, changed, tuple(_follows(subject, suspend, now)))


def _follows(subject: Subject, suspend: bool, now: float) -> Iterator[str]:
    if subject.policy is None:
        yield f"It cannot be followed anyway: {subject.problem}."
        return
    if not subject.status:
        yield "No operator has looked at it yet."
    yield from _suspended(subject, now) if suspend else _resumed(subject)
    manager = _other_manager(subject.body)
    if manager:
        yield (
            f"Field manager {manager} sets spec.suspend too and may put it back: change it there."
        )


def _suspended(subject: Subject, now: float) -> Iterator[str]:
    yield "No decision is taken; readings and diagnosis go on."
    pending, mode = subject.memory.pending, subject.policy and subject.policy.spec.mode
    held = subject.in_force(now)
    if held.source is Source.DOCUMENT and mode is Mode.AUTO:
        yield f"{sentence(show(held.values))} stays in force and is renewed."
    elif held.source is Source.DOCUMENT:
        yield f"{sentence(show(held.values))} stays in force until the knob document expires."
    elif held.source is Source.STATUS:
        yield "Values in force stay as they are."
    else:
        yield "Stock LRU stays in force."
    if pending is not None:
        yield _frozen(pending)


def _frozen(pending: Pending) -> str:
    change = f"The change under way, to {show(pending.change_to)},"
    if pending.phase is Phase.WRITING:
        return f"{change} is given up unless it is written by now."
    return f"{change} stays where it is ({pending.phase}): the verdict waits."


def _resumed(subject: Subject) -> Iterator[str]:
    pending, mode = subject.memory.pending, subject.policy and subject.policy.spec.mode
    if any(each.get("reason") == Reason.FLEET_SWITCH for each in _conditions(subject)):
        yield "The administrator's fleet.mode holds every policy back all the same."
    elif mode is Mode.AUTO:
        yield "Decisions are taken again, from the next tick on; values may change."
    elif mode is Mode.RECOMMEND:
        yield "Recommendations are made again; mode Recommend writes no values."
    else:
        yield "Mode Observe takes no decisions; readings and diagnosis go on."
    if pending is not None:
        yield f"The change under way, to {show(pending.change_to)}, goes on from {pending.phase}."


def _conditions(subject: Subject) -> list[Mapping[str, Any]]:
    return list(subject.status.get("conditions") or ())


def _other_manager(body: Mapping[str, Any]) -> str:
    """Who else set spec.suspend, such as a GitOps tool that will set it again; "" if nobody."""
    for entry in body["metadata"].get("managedFields") or ():
        manager = str(entry.get("manager") or "")
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:suspend" in fields and manager != MANAGER and not manager.startswith("kubectl"):
            return manager
    return ""


def render(switched: Switched, paper: Paper) -> str:
    """What was done, and what follows."""
    done = "suspended" if switched.suspended else "resumed"
    if not switched.changed:
        done = f"was {'suspended already' if switched.suspended else 'not suspended'}: unchanged"
    lines = [f"{paper.paint(switched.subject.key, '1')} {done}"]
    for told in switched.follows if switched.changed else ():
        lines += paper.wrapped(told, "  ", "  ")
    return "\n".join(lines)
