"""A policy as people ask about it: what it says, what is remembered, what is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evictune.act.knobs import KnobStore, StoredKnobs
from evictune.api.decision import Memory
from evictune.api.knobs import STOCK_LRU, KnobValues
from evictune.api.parse import parse_policy
from evictune.api.policy import EvictionPolicy
from evictune.api.quantity import FieldError
from evictune.api.status import memory_from_status
from evictune.console.refusals import explained
from evictune.kube import ApiError, KubeApi


class Source(StrEnum):
    """From what is known what the engines follow."""

    DOCUMENT = "Document"
    EXPIRED = "Expired"
    NONE = "None"
    STATUS = "Status"


@dataclass(frozen=True)
class InForce:
    """The values that the engines are told to follow, and from what that is known.

    STATUS: the document may not be read by whoever asks; the policy's status says so.
    """

    values: KnobValues
    source: Source
    revision: int | None = None
    expires: float | None = None


@dataclass(frozen=True)
class Subject:
    """policy: None where the spec cannot be used, and `problem` says why.

    unread: why the knob document could not be read; empty where it was.
    """

    body: Mapping[str, Any]
    policy: EvictionPolicy | None
    stored: StoredKnobs = field(default_factory=StoredKnobs)
    problem: str = ""
    unread: str = ""

    @property
    def namespace(self) -> str:
        """Of the policy."""
        return str(self.body["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        """Of the policy."""
        return str(self.body["metadata"]["name"])

    @property
    def key(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def spec(self) -> Mapping[str, Any]:
        """As the API server holds it."""
        found: Mapping[str, Any] = self.body.get("spec") or {}
        return found

    @property
    def status(self) -> Mapping[str, Any]:
        """As the API server holds it."""
        found: Mapping[str, Any] = self.body.get("status") or {}
        return found

    @property
    def memory(self) -> Memory:
        """What the operator remembers."""
        return memory_from_status(self.status)

    def in_force(self, now: float) -> InForce:
        """What the engines are told to follow, at `now` (seconds since the epoch)."""
        document = self.stored.document
        if self.unread or self.policy is None:
            applied = self.memory.applied
            values, revision = (applied.values, applied.revision) if applied else (STOCK_LRU, None)
            return InForce(values, Source.STATUS, revision)
        if document is None:
            return InForce(STOCK_LRU, Source.NONE)
        if document.expires <= now:
            return InForce(STOCK_LRU, Source.EXPIRED, document.revision, document.expires)
        return InForce(document.values, Source.DOCUMENT, document.revision, document.expires)


def subject_of(api: KubeApi, body: Mapping[str, Any]) -> Subject:
    """The policy with its knob document. Raises ApiError where the server cannot be reached.

    Whoever may read policies but not ConfigMaps is told what status says.
    """
    try:
        policy = parse_policy(body)
    except FieldError as error:
        return Subject(body, None, problem=str(error))
    try:
        return Subject(body, policy, KnobStore(api).read(policy))
    except ApiError as error:
        if error.status != 403:
            raise
        return Subject(body, policy, unread=explained(error))
