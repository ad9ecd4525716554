"""The memory fraction's bounds, and how far engines may be restarted for it.

A change of `gpuMemoryUtilization` restarts engines in place, one at a time. What that may cost is
the user's to say: by default nothing is restarted.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar

from evictune.api.fields import Rule, choice, decimal, duration, integer, listed, text
from evictune.api.schedule import is_cron, is_time_zone

# Above it an engine starts and dies minutes later, when a burst needs what was left of the memory:
# of 80 GB, 0.95 leaves 4. Below it no engine starts.
MAX_FRACTION = "0.95"
MIN_FRACTION = "0.05"
CRON_PATTERN = r"^[^\s]+( [^\s]+){4}$"
TIME_ZONE_PATTERN = r"^[A-Za-z0-9_+/-]+$"
MAX_WINDOWS = 16


class DisruptionPolicy(StrEnum):
    """Whether an engine may be restarted."""

    NEVER = "Never"
    WHEN_REDUNDANT = "WhenRedundant"
    ALLOW = "Allow"


@dataclass(frozen=True)
class FractionRange:
    """Bounds of the memory fraction, both included, and the size of a step."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "double(self.min) <= double(self.max)",
            "min must not be above max: lower min or raise max",
            ".min",
            lambda bounds: bounds.minimum <= bounds.maximum,
        ),
    )

    minimum: Decimal = decimal(
        'Smallest fraction that may be set, such as "0.80".',
        minimum=MIN_FRACTION,
        maximum=MAX_FRACTION,
        required=True,
        name="min",
    )
    maximum: Decimal = decimal(
        'Largest fraction that may be set, such as "0.94". An engine that takes more than 0.95 '
        "starts, and dies under load.",
        minimum=MIN_FRACTION,
        maximum=MAX_FRACTION,
        required=True,
        name="max",
    )
    step: Decimal = decimal(
        "By how much it is changed at a time.", minimum="0.001", maximum="0.2", default="0.02"
    )


@dataclass(frozen=True)
class DisruptionWindow:
    """A stretch of time that comes again and again."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        # What a cron expression and a time zone are, CEL cannot say.
        Rule(
            "",
            'write five fields that cron knows, such as "0 2 * * 1-5": minute, hour, day of the '
            "month, month, day of the week",
            ".cron",
            lambda window: is_cron(window.cron),
        ),
        Rule(
            "",
            "name a time zone of the IANA database, such as Europe/Berlin or UTC",
            ".timeZone",
            lambda window: is_time_zone(window.time_zone),
        ),
    )

    cron: str = text(
        'When it opens: a cron expression of five fields, such as "0 2 * * 1-5".',
        required=True,
        pattern=CRON_PATTERN,
        max_length=128,
    )
    length: float = duration(
        "For how long it is open, such as 3h.",
        minimum="1m",
        maximum="168h",
        required=True,
        name="duration",
    )
    time_zone: str = text(
        "The time zone of the cron expression, such as Europe/Berlin.",
        default="UTC",
        pattern=TIME_ZONE_PATTERN,
        max_length=64,
    )


@dataclass(frozen=True)
class Disruption:
    """How far engines may be restarted; durations in seconds."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minReady) || self.minReady >= 1 || self.policy != 'WhenRedundant'",
            "minReady must be at least 1 with policy WhenRedundant: raise it, or set policy to "
            "Allow to have the only engine restarted",
            ".minReady",
            lambda disruption: (
                disruption.policy is not DisruptionPolicy.WHEN_REDUNDANT
                or disruption.min_ready is None
                or disruption.min_ready >= 1
            ),
        ),
    )

    policy: DisruptionPolicy = choice(
        "Whether engines may be restarted in place, one at a time. Never: the fraction is "
        "recommended, not set. WhenRedundant: where another engine is Ready meanwhile, and not "
        "while requests pile up. Allow: also the only engine, and under such a load.",
        default=DisruptionPolicy.NEVER,
    )
    min_ready: int | None = integer(
        "So many engines at least stay Ready while one restarts. Left out: 1 with WhenRedundant, "
        "0 with Allow.",
        minimum=0,
        maximum=10_000,
    )
    max_per_day: int = integer(
        "Most changes of the fraction begun within 24 hours; each restarts every engine once. "
        "Taking one back is not counted.",
        minimum=1,
        maximum=24,
        default=2,
    )
    windows: tuple[DisruptionWindow, ...] = listed(
        "When engines may be restarted, also to take a change back. Left out: at any time.",
        DisruptionWindow,
        max_items=MAX_WINDOWS,
    )
    drain_timeout: float = duration(
        "How long requests in flight may hold a restart up; those that take longer are lost.",
        minimum="0s",
        maximum="1h",
        default="2m",
    )

    @property
    def least_ready(self) -> int:
        """minReady, or what the policy stands for."""
        if self.min_ready is not None:
            return self.min_ready
        return 0 if self.policy is DisruptionPolicy.ALLOW else 1
