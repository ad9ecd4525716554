"""`evictune diff`: what is recommended against what is in force, and why it is not set."""

from __future__ import annotations

from collections.abc import Sequence

from evictune.api.knobs import KnobValues
from evictune.api.policy import EvictionPolicy, Mode
from evictune.api.quantity import format_fraction, format_span
from evictune.api.reasons import REASONS, Reason
from evictune.console.paper import Paper
from evictune.console.subjects import Source, Subject
from evictune.decide.situation import show

_ABSENT = "-"
# Told in a condition although the policy is ready.
_HELD_BY_OTHERS = (Reason.FLEET_SWITCH, Reason.FIGHT_DETECTED)


def differs(subject: Subject, now: float) -> bool:
    """Whether something else is recommended than is in force."""
    wanted = subject.memory.recommendation
    return wanted is not None and wanted.target != subject.in_force(now).values


def holding(subject: Subject, now: float) -> tuple[Reason, str] | None:
    """The first thing that keeps the recommendation from being set, with its words; else None."""
    policy, memory = subject.policy, subject.memory
    if policy is None:
        return Reason.INVALID, subject.problem
    if policy.spec.suspend:
        return Reason.SUSPENDED, f"spec.suspend is true; evictune resume {subject.key} lifts it"
    if policy.spec.mode is not Mode.AUTO:
        observing = policy.spec.mode is Mode.OBSERVE
        reason = Reason.OBSERVE_ONLY if observing else Reason.RECOMMEND_ONLY
        return reason, f"spec.mode is {policy.spec.mode}; Auto lets evictune set it"
    for condition in subject.status.get("conditions") or ():
        reason = REASONS.get(condition["reason"], Reason.INVALID)
        unready = condition.get("type") == "Ready" and condition.get("status") != "True"
        if unready or reason in _HELD_BY_OTHERS:
            return reason, str(condition.get("message", ""))
    if memory.pending is not None:
        phase = (
            f"a change to {show(memory.pending.change_to)} is under way ({memory.pending.phase})"
        )
        return Reason.SETTLING, phase
    return _cooldown(policy, memory.last_change_time, now)


def _cooldown(policy: EvictionPolicy, last: float | None, now: float) -> tuple[Reason, str] | None:
    left = 0.0 if last is None else min(last, now) + policy.spec.behavior.cooldown - now
    if left <= 0:
        return None
    return Reason.COOLDOWN, f"the next change may begin in {format_span(left)}"


def render(subjects: Sequence[Subject], paper: Paper) -> str:
    """A block for each policy that differs, a line for each that does not."""
    blocks = ["\n".join(_block(each, paper)) for each in subjects if differs(each, paper.now)]
    others = [each for each in subjects if not differs(each, paper.now)]
    same = "\n".join(line for each in others for line in _same(each, paper))
    return "\n\n".join([*blocks, same] if same else blocks)


def _same(subject: Subject, paper: Paper) -> list[str]:
    wanted, regime = subject.memory.recommendation, subject.memory.regime
    if subject.policy is None:
        told = f"cannot be followed: {subject.problem}"
    elif wanted is not None:
        told = f"as recommended: {show(wanted.target)}"
    elif regime is None:
        told = "nothing is recommended: not looked at yet"
    else:
        told = f"nothing is recommended: {regime.name}, {regime.message or regime.name.meaning}"
    lines = paper.wrapped(f"{subject.key}  {told}", "", "  ")
    return [lines[0].replace(subject.key, paper.paint(subject.key, "1"), 1), *lines[1:]]


def _block(subject: Subject, paper: Paper) -> list[str]:
    wanted = subject.memory.recommendation
    if wanted is None:
        return []
    now = subject.in_force(paper.now)
    columns = [now.values, wanted.target]
    heads = ["", "IN FORCE", "RECOMMENDED"]
    if wanted.uncapped != wanted.target:
        columns.append(wanted.uncapped)
        heads.append("WITHOUT BOUNDS")
    lines = [paper.paint(subject.key, "1")]
    lines += [f"  {line}" for line in _columns(heads, columns)]
    lines += paper.row("because", wanted.basis)
    hold = holding(subject, paper.now)
    if hold is not None:
        lines += paper.row("not set", f"{hold[0]}: {hold[1]}")
    else:
        lines += paper.row("not set", "yet: the next tick decides, if no guardrail holds it")
    if now.source is Source.STATUS:
        lines += paper.row("in force", f"by status alone: {subject.unread}")
    if now.source is Source.EXPIRED:
        lines += paper.row("in force", f"the document expired {paper.ago(now.expires or 0)}")
    return lines


def _columns(heads: Sequence[str], values: Sequence[KnobValues]) -> list[str]:
    rows = [
        list(heads),
        ["policy", *("lru" if each.stock else "t-lru" for each in values)],
        ["xiTokens", *(_number(each.xi_tokens) for each in values)],
        ["qHatTokens", *(_number(each.q_hat_tokens) for each in values)],
    ]
    if any(each.fraction is not None for each in values):
        rows.append(["gpuMemoryUtilization", *(_fraction(each) for each in values)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _fraction(values: KnobValues) -> str:
    return _ABSENT if values.fraction is None else format_fraction(values.fraction)


def _number(value: int | None) -> str:
    return _ABSENT if value is None else str(value)
