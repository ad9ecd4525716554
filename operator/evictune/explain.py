"""`evictune explain`: what was seen, believed and decided for a policy, and what would help.

Reads the policy and its ConfigMap from the API server, and nothing else.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evictune.act.knobs import KnobStore, StoredKnobs
from evictune.api.decision import Memory
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.quantity import FieldError, format_duration
from evictune.api.reasons import Kind, Reason
from evictune.api.status import memory_from_status
from evictune.decide.situation import show
from evictune.kube import KubeApi, policies_path

WIDTH = 100
_LABEL = 16
_MARKS = {"True": ("✔", "32"), "False": ("✘", "31"), "Unknown": ("?", "33")}
_READINGS = (
    ("queue time", "queueTime", "mean wait before prefill"),
    ("KV blocks held", "kvCacheUsage", "share held by live requests, hottest engine"),
    ("preemptions", "preemptionsPerSecond", "a second, hottest engine"),
    ("hit ratio", "hitRatio", "share of prompt tokens found in the prefix cache"),
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


@dataclass(frozen=True)
class Paper:
    """How to write: at what time, and whether in colour."""

    now: float
    colored: bool

    def paint(self, text: str, code: str) -> str:
        """The text in a colour (an ANSI code)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colored else text

    def title(self, text: str, remark: str = "") -> str:
        """A section's head."""
        return self.paint(text.upper(), "1") + (f"  {remark}" if remark else "")

    def row(self, label: str, text: str) -> list[str]:
        """A label and its text, wrapped below itself."""
        head = f"  {label:<{_LABEL}} "
        return wrapped(text, head, " " * len(head))

    def ago(self, then: float) -> str:
        """How long ago, or how long from now."""
        return span(self.now - then) + " ago" if then <= self.now else "in " + span(then - self.now)


def wrapped(text: str, first: str, rest: str) -> list[str]:
    """Lines of at most WIDTH characters."""
    filled = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest)
    return filled or [first.rstrip()]


def span(seconds: float) -> str:
    """A duration for people: its two largest units at most."""
    for size, unit, below, small in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = int(seconds % size // below)
            return f"{int(seconds // size)}{unit}" + (f"{rest}{small}" if rest else "")
    return f"{int(seconds)}s"


def explain(api: KubeApi, namespace: str, name: str, *, colored: bool) -> str | None:
    """The explanation, or None if there is no such policy. Raises ApiError."""
    body = api.get_or_none(f"{policies_path(namespace)}/{name}")
    if body is None:
        return None
    paper = Paper(time.time(), colored)
    try:
        policy = parse_policy(body)
    except FieldError as error:
        return "\n".join(
            [f"{namespace}/{name} cannot be followed:", *wrapped(str(error), "  ", "  ")]
        )
    return render(policy, KnobStore(api).read(policy), paper)


def render(policy: EvictionPolicy, stored: StoredKnobs, paper: Paper) -> str:
    """The explanation as text of at most WIDTH columns."""
    memory = memory_from_status(policy.status)
    sections = [_head(policy, paper)]
    if not policy.status:
        sections.append(["Not looked at yet: is the operator running and following the namespace?"])
    else:
        sections += [
            _diagnosis(memory, paper),
            _seen(policy, paper),
            _in_force(policy, memory, stored, paper),
            _under_way(memory, paper),
            _recommended(memory, paper),
            _conditions(policy, paper),
            _decisions(memory, paper),
            _quarantine(memory, paper),
        ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _head(policy: EvictionPolicy, paper: Paper) -> list[str]:
    spec, ttft = policy.spec, policy.spec.slo.ttft
    mode = f"mode {spec.mode}" + (", suspended" if spec.suspend else "")
    name = paper.paint(policy.key, "1")
    goal = f"p{_percent(str(ttft.quantile))} of TTFT at most {format_duration(ttft.threshold)}"
    parts = [f"{name}  ·  {spec.target_ref.kind} {spec.target_ref.name}", mode, goal]
    return ["  ·  ".join(parts)]


def _percent(quantile: str) -> str:
    return f"{float(quantile) * 100:.6g}"


def _diagnosis(memory: Memory, paper: Paper) -> list[str]:
    regime = memory.regime
    if regime is None:
        return []
    name = paper.paint(str(regime.name), "1;36")
    lines = [f"{paper.title('Diagnosis')}  {name}, since {paper.ago(regime.since)}"]
    lines += wrapped(regime.message or regime.name.meaning, "  ", "  ")
    if regime.name.remedy:
        lines += paper.row("what would help", regime.name.remedy)
    return lines


def _seen(policy: EvictionPolicy, paper: Paper) -> list[str]:
    observed: Mapping[str, Any] = policy.status.get("observed") or {}
    if not observed:
        return []
    window = format_duration(policy.spec.slo.ttft.window)
    lines = [paper.title("Seen", f"over the last {window}, from source {policy.spec.source}")]
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
            yield label, str(observed[key]), remark


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
        parts.append(f"share above {threshold}: {ttft['aboveThreshold']}")
    return "; ".join(parts)


def _engines(engines: Mapping[str, int]) -> str:
    parts = [f"{engines.get('ready', 0)} of {engines.get('total', 0)} pods ready"]
    parts.append(f"{engines.get('acknowledged', 0)} acknowledged")
    if engines.get("ineligible"):
        parts.append(f"{engines['ineligible']} cannot use T-LRU")
    return ", ".join(parts)


def _in_force(
    policy: EvictionPolicy, memory: Memory, stored: StoredKnobs, paper: Paper
) -> list[str]:
    document = stored.document
    title = paper.title("In force")
    if document is None:
        return [f"{title}  stock LRU: there is no knob document"]
    if document.expires <= paper.now:
        return [f"{title}  stock LRU: the knob document expired {paper.ago(document.expires)}"]
    lines = [f"{title}  {show(document.values)}"]
    revision = f"revision {document.revision}, expires {paper.ago(document.expires)} unless renewed"
    lines += paper.row("document", revision)
    if memory.applied and memory.applied.revision == document.revision:
        lines += paper.row("decided by", memory.applied.decision_id)
    if stored.foreign_manager:
        lines += paper.row("changed by", f"field manager {stored.foreign_manager}; left alone")
    return lines


def _under_way(memory: Memory, paper: Paper) -> list[str]:
    pending = memory.pending
    if pending is None:
        return []
    change = f"{show(pending.change_from)} → {show(pending.change_to)}"
    lines = [f"{paper.title('Under way')}  {change}"]
    began = paper.ago(pending.start_time)
    lines += paper.row("phase", f"{pending.phase}, begun {began}, revision {pending.revision}")
    lines += paper.row("why", f"{pending.reason}: {pending.reason.meaning}")
    if pending.revert_of:
        lines += paper.row("takes back", pending.revert_of)
    return lines


def _recommended(memory: Memory, paper: Paper) -> list[str]:
    wanted = memory.recommendation
    if wanted is None:
        return []
    lines = [f"{paper.title('Recommended')}  {show(wanted.target)}"]
    if wanted.uncapped != wanted.target:
        lines += paper.row("without bounds", show(wanted.uncapped))
    return lines + paper.row("because", wanted.basis)


def _conditions(policy: EvictionPolicy, paper: Paper) -> list[str]:
    conditions: Iterable[Mapping[str, str]] = policy.status.get("conditions") or ()
    lines = [paper.title("Conditions")]
    for each in conditions:
        mark, color = _MARKS.get(each["status"], _MARKS["Unknown"])
        head = f"  {mark} {each['type']:<17} {each['reason']:<20} "
        text = wrapped(each["message"], head, " " * len(head))
        lines += [text[0].replace(mark, paper.paint(mark, color), 1), *text[1:]]
        remedy = _remedy(each)
        if remedy:
            indent = " " * len(head)
            lines += wrapped(f"→ {remedy}", indent, indent + "  ")
    return lines


def _remedy(condition: Mapping[str, str]) -> str:
    """What to do about a condition that does not hold; the diagnosis has told its own."""
    if condition["status"] == "True":
        return ""
    reason = next((each for each in Reason if each.value == condition["reason"]), None)
    return "" if reason is None or reason.kind is Kind.REGIME else reason.remedy


def _decisions(memory: Memory, paper: Paper) -> list[str]:
    if not memory.decisions:
        return []
    lines = [paper.title("Decisions", "newest first")]
    for record in reversed(memory.decisions):
        head = f"  {paper.ago(record.time):>10}  {record.reason:<14} "
        lines += wrapped(record.message, head, " " * len(head))
    return lines


def _quarantine(memory: Memory, paper: Paper) -> list[str]:
    live = [each for each in memory.quarantine if each.until > paper.now]
    if not live:
        return []
    lines = [paper.title("Tried and left")]
    for each in live:
        measured = f", TTFT {format_duration(each.ttft)}" if each.ttft is not None else ""
        small = ", more was protected than fits" if each.too_small else ""
        until = f"forgotten {paper.ago(each.until)}"
        lines += wrapped(f"{show(each.values)}{measured}{small}; {until}", "  ", "    ")
    return lines
