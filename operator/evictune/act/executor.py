"""One decision carried out, in the order that survives a crash between any two steps.

Status first: it holds the intent, and its resourceVersion precondition proves that the decision
rests on what still stands. Then the effects, which repeat harmlessly. Then Events, which only tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evictune.act.definition import DefinitionCheck
from evictune.act.events import TOLD_AGAIN_FOR, EventRecorder
from evictune.act.knobs import KnobStore, StoredKnobs
from evictune.act.status import StatusPrunedError, StatusWriter
from evictune.api.decision import Decision, DecisionRecord, Effect
from evictune.api.policy import EvictionPolicy
from evictune.api.reasons import Reason
from evictune.kube import ApiError, KubeApi


class Executor:
    """Blocking; safe to share between threads."""

    def __init__(self, api: KubeApi) -> None:
        self.knobs = KnobStore(api)
        self.status = StatusWriter(api)
        self.events = EventRecorder(api)
        self.definition = DefinitionCheck(api)

    def check_definition(self, body: Mapping[str, Any], policy: EvictionPolicy, now: float) -> None:
        """Before anything is written: is the definition as new as this operator?

        Raises StatusPrunedError; told by an Event only, since a status would lose what it holds.
        """
        try:
            self.definition.check(body)
        except StatusPrunedError as error:
            record = DecisionRecord("definition", now, Reason.DEFINITION_OUTDATED, str(error))
            self.events.emit(policy, record)
            raise

    def remember(self, body: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Write the status of the resource that was read as `body`.

        Raises StaleObjectError, StatusPrunedError, ApiError: then nothing else may be done.
        """
        self.status.write(body, status)

    def carry_out(
        self, policy: EvictionPolicy, decision: Decision, stored: StoredKnobs, now: float
    ) -> bool:
        """Carry out the effects of a decision that is remembered; then emit its Events.

        False if an Event was not emitted. Raises StaleObjectError, ForeignManagerError, ApiError;
        the Events are emitted all the same: they tell what status already says.
        """
        try:
            for effect in decision.effects:
                self._write(policy, decision, effect, stored, now)
        finally:
            told = [self.events.emit(policy, record) for record in decision.audit]
        return all(told)

    def _write(
        self,
        policy: EvictionPolicy,
        decision: Decision,
        effect: Effect,
        stored: StoredKnobs,
        now: float,
    ) -> None:
        try:
            self.knobs.write(policy, effect, stored, now)
        except ApiError as error:
            if error.status:
                self.events.emit(policy, _refused(decision, error, now))
            raise

    def tell_again(
        self, policy: EvictionPolicy, records: Iterable[DecisionRecord], now: float
    ) -> None:
        """Emit what a predecessor may have died before emitting."""
        for record in records:
            if now - record.time < TOLD_AGAIN_FOR:
                self.events.emit(policy, record)


def _refused(decision: Decision, error: ApiError, now: float) -> DecisionRecord:
    """Told once a change: its Event's name comes from the decision."""
    change = decision.memory.pending or decision.memory.applied
    return DecisionRecord(
        change.decision_id if change else "", now, Reason.WRITE_REFUSED, str(error)
    )
