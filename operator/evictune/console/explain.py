"""`evictune explain`: what was seen, believed and decided for a policy, and what would help.

From the policy and its ConfigMap, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evictune.api.decision import Memory
from evictune.api.policy import EvictionPolicy
from evictune.api.quantity import format_duration
from evictune.api.reasons import REASONS, Kind
from evictune.console.paper import Paper
from evictune.console.subjects import Source, Subject
from evictune.decide.situation import show

_DOT = "  ·  "
_UNBROKEN = "\u00a0"
_MARKS = {"True": ("✔", "32"), "False": ("✘", "31"), "Unknown": ("?", "33")}
_SHARES = ("kvCacheUsage", "hitRatio")
_READINGS = (
    ("queue time", "queueTime", "mean wait before prefill"),
    ("KV blocks held", "kvCacheUsage", "of the cache, by live requests; hottest engine"),
    ("preemptions", "preemptionsPerSecond", "a second, hottest engine"),
    ("hit ratio", "hitRatio", "of the prompt tokens were found in the prefix cache"),
    ("running", "running", "requests"),
    ("waiting", "waiting", "requests"),
    ("prefill", "prefillTokensPerSecond", "tokens per second of prefill"),
    ("uncached", "uncachedTokensPerSecond", "prompt tokens computed a second"),
    ("evicted (lru)", "evictedLru", "cached blocks in stock order"),
    ("evicted (safe)", "evictedTelSafe", "cached blocks that T-LRU gives away first"),
    (
        "evicted, kept",
        "evictedProtected",
        "cached blocks that T-LRU protects: then xi is too small",
    ),
    ("computed again", "recomputedTokens", "tokens that had been cached before"),
)


def render(subject: Subject, paper: Paper) -> str:
    """The explanation as text of at most the paper's width."""
    policy, memory = subject.policy, subject.memory
    if policy is None:
        told = paper.wrapped(subject.problem, "  ", "  ")
        return "\n".join([f"{paper.paint(subject.key, '1')} cannot be followed:", *told])
    sections = [_head(policy, paper)]
    if not policy.status:
        unseen = "Not looked at yet: is the operator running and following the namespace?"
        sections.append(paper.wrapped(unseen, "", ""))
    else:
        sections += [
            _diagnosis(memory, paper),
            _seen(policy, paper),
            _in_force(subject, paper),
            _under_way(memory, paper),
            _recommended(memory, paper),
            _held(policy, paper),
            _conditions(policy, paper),
            _decisions(memory, paper),
            _quarantine(memory, paper),
        ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _head(policy: EvictionPolicy, paper: Paper) -> list[str]:
    spec, ttft = policy.spec, policy.spec.slo.ttft
    mode = f"mode {spec.mode}" + (", suspended" if spec.suspend else "")
    goal = f"p{_percent(str(ttft.quantile))} of TTFT at most {format_duration(ttft.threshold)}"
    parts = [policy.key, f"{spec.target_ref.kind} {spec.target_ref.name}", mode, goal]
    # Lines break between the parts, not within them.
    whole = _DOT.join(part.replace(" ", _UNBROKEN) for part in parts)
    lines = [each.replace(_UNBROKEN, " ") for each in paper.wrapped(whole, "", "  ")]
    return [lines[0].replace(policy.key, paper.paint(policy.key, "1"), 1), *lines[1:]]


def _percent(quantile: str) -> str:
    return f"{float(quantile) * 100:.6g}"


def _diagnosis(memory: Memory, paper: Paper) -> list[str]:
    regime = memory.regime
    if regime is None:
        return []
    told = f"{regime.name}, since {paper.ago(regime.since)}"
    lines = paper.headed("Diagnosis", told, str(regime.name))
    lines += paper.wrapped(regime.message or regime.name.meaning, "  ", "  ")
    if regime.name.remedy:
        lines += paper.row("what would help", regime.name.remedy)
    return lines


def _seen(policy: EvictionPolicy, paper: Paper) -> list[str]:
    observed: Mapping[str, Any] = policy.status.get("observed") or {}
    if not observed:
        return []
    window = format_duration(policy.spec.slo.ttft.window)
    lines = paper.headed("Seen", f"over the last {window}, from source {policy.spec.source}")
    unread = []
    ttft = _ttft(policy, observed.get("ttft") or {})
    for label, text, remark in (("TTFT", ttft, ""), *_readings(observed)):
        if text == "Unknown":
            unread.append(label)
        else:
            lines += paper.row(label, f"{text:<9} {remark}")
    if unread:
        lines += paper.row("unknown", ", ".join(unread))
    return lines + paper.row("engines", _engines(policy.status.get("engines") or {}))


def _readings(observed: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Label, text and remark of each reading that status has."""
    for label, key, remark in _READINGS:
        if key in observed:
            text = str(observed[key])
            yield label, _share(text) if key in _SHARES else text, remark


def _ttft(policy: EvictionPolicy, ttft: Mapping[str, str]) -> str:
    estimate = ttft.get("estimate", "Unknown")
    if estimate in ("Unknown", "Idle"):
        return estimate
    quantile = _percent(str(policy.spec.slo.ttft.quantile))
    parts = [f"{estimate:<9} p{quantile}"]
    # A status is what its writer left there: an older operator, or a hand, may have left less.
    if "lower" in ttft and "upper" in ttft:
        parts.append(f"buckets say {ttft['lower']} to {ttft['upper']}")
    if "requests" in ttft:
        parts.append(f"{ttft['requests']} requests")
    if "aboveThreshold" in ttft:
        threshold = format_duration(policy.spec.slo.ttft.threshold)
        parts.append(f"{_share(ttft['aboveThreshold'])} above {threshold}")
    return "; ".join(parts)


def _share(text: str) -> str:
    """In per cent; a word, such as Idle, as it is."""
    try:
        return f"{float(text) * 100:.3g}%"
    except ValueError:
        return text


def _engines(engines: Mapping[str, Any]) -> str:
    parts = [f"{engines.get('ready', 0)} of {engines.get('total', 0)} pods ready"]
    parts.append(f"{engines.get('acknowledged', 0)} acknowledged")
    if engines.get("ineligible"):
        parts.append(f"{engines['ineligible']} cannot use T-LRU")
    if engines.get("gpuMemoryUtilization"):
        parts.append(f"memory fraction {engines['gpuMemoryUtilization']}")
    if engines.get("kvBlocks"):
        parts.append(f"{engines['kvBlocks']} KV blocks each")
    return ", ".join(parts)


def _in_force(subject: Subject, paper: Paper) -> list[str]:
    memory, stored, now = subject.memory, subject.stored, subject.in_force(paper.now)
    told = show(now.values)
    if now.source is Source.NONE:
        told += ": there is no knob document"
    if now.source is Source.EXPIRED:
        told += f": the knob document expired {paper.ago(now.expires or 0)}"
    lines = paper.headed("In force", told)
    if now.source in (Source.NONE, Source.EXPIRED):
        return lines
    if now.source is Source.STATUS:
        return lines + paper.row("by status alone", subject.unread)
    renewed = f"expires {paper.ago(now.expires or 0)} unless renewed"
    lines += paper.row("document", f"revision {now.revision}, {renewed}")
    if memory.applied and memory.applied.revision == now.revision:
        lines += paper.row("decided by", memory.applied.decision_id)
    if stored.foreign_manager:
        lines += paper.row("changed by", f"field manager {stored.foreign_manager}; left alone")
    return lines


def _under_way(memory: Memory, paper: Paper) -> list[str]:
    pending = memory.pending
    if pending is None:
        return []
    change = f"{show(pending.change_from)} → {show(pending.change_to)}"
    lines = paper.headed("Under way", change)
    began = paper.ago(pending.start_time)
    lines += paper.row("phase", f"{pending.phase}, begun {began}, revision {pending.revision}")
    lines += paper.row("why", f"{pending.reason}: {pending.reason.meaning}")
    if pending.turn is not None:
        pods = ", ".join(turn.pod for turn in pending.turns)
        lines += paper.row("restarted", f"{pods}; the last one is under way")
    if pending.revert_of:
        lines += paper.row("takes back", pending.revert_of)
    return lines


def _recommended(memory: Memory, paper: Paper) -> list[str]:
    wanted = memory.recommendation
    if wanted is None:
        return []
    lines = paper.headed("Recommended", show(wanted.target))
    if wanted.uncapped != wanted.target:
        lines += paper.row("without bounds", show(wanted.uncapped))
    return lines + paper.row("because", wanted.basis)


def _held(policy: EvictionPolicy, paper: Paper) -> list[str]:
    """What kept a memory fraction from being set at the last look, each with its remedy."""
    holds: Iterable[Mapping[str, str]] = policy.status.get("holds") or ()
    lines = []
    for each in holds:
        lines += paper.row(each["reason"], each["message"])
        reason = REASONS.get(each["reason"])
        if reason is not None and reason.remedy:
            lines += paper.row("", f"→ {reason.remedy}")
    return [*paper.headed("Held back"), *lines] if lines else []


def _conditions(policy: EvictionPolicy, paper: Paper) -> list[str]:
    conditions: Iterable[Mapping[str, str]] = policy.status.get("conditions") or ()
    lines = paper.headed("Conditions")
    for each in conditions:
        mark, color = _MARKS.get(each["status"], _MARKS["Unknown"])
        head = f"  {mark} {each['type']:<17} {each['reason']:<20}"
        indent = " " * (len(head) + 1)
        if paper.narrow:
            indent = " " * 4
            text = [head.rstrip(), *paper.wrapped(each["message"], indent, indent)]
        else:
            text = paper.wrapped(each["message"], f"{head} ", indent)
        lines += [text[0].replace(mark, paper.paint(mark, color), 1), *text[1:]]
        remedy = remedy_of(each)
        if remedy:
            lines += paper.wrapped(f"→ {remedy}", indent, indent + "  ")
    return lines


def remedy_of(condition: Mapping[str, str]) -> str:
    """What to do about a condition that does not hold, or that holds the policy back.

    The diagnosis has told its own.
    """
    reason = REASONS.get(condition["reason"])
    if reason is None or reason.kind is Kind.REGIME:
        return ""
    return reason.remedy if condition["status"] != "True" or reason.kind is Kind.HOLD else ""


def _decisions(memory: Memory, paper: Paper) -> list[str]:
    if not memory.decisions:
        return []
    lines = paper.headed("Decisions", "newest first")
    for record in reversed(memory.decisions):
        head = f"  {paper.ago(record.time):>10}  {record.reason:<14} "
        lines += paper.wrapped(record.message, head, " " * len(head))
    return lines


def _quarantine(memory: Memory, paper: Paper) -> list[str]:
    live = [each for each in memory.quarantine if each.until > paper.now]
    if not live:
        return []
    lines = paper.headed("Tried and left")
    for each in live:
        measured = f", TTFT {format_duration(each.ttft)}" if each.ttft is not None else ""
        small = ", more was protected than fits" if each.too_small else ""
        until = f"forgotten {paper.ago(each.until)}"
        lines += paper.wrapped(f"{show(each.values)}{measured}{small}; {until}", "  ", "    ")
    return lines
