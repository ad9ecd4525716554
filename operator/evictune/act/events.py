"""Events on the policy: one a transition, with a name made from the decision.

The name makes it idempotent: creating an Event twice answers 409, which is ignored. So a restarted
operator may emit again what it may not have emitted before it died.
"""

from __future__ import annotations

import hashlib
import logging
import math
from typing import Any

from evictune.api.decision import DecisionRecord
from evictune.api.policy import GROUP, KIND, VERSION, EvictionPolicy
from evictune.api.reasons import Reason
from evictune.api.times import format_time
from evictune.kube import ApiError, KubeApi
from evictune.logs import about

COMPONENT = "evictune"
MESSAGE_LIMIT = 1024
# The API server forgets Events after an hour (--event-ttl): older ones are not told again.
TOLD_AGAIN_FOR = 3600.0

_WARNINGS = {
    Reason.REVERTED,
    Reason.ABANDONED,
    Reason.ENGINE_FAILED,
    Reason.WRITE_REFUSED,
    Reason.DEFINITION_OUTDATED,
}

log = logging.getLogger(__name__)


class EventRecorder:
    """Blocking creation of Events."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def emit(self, policy: EvictionPolicy, record: DecisionRecord) -> bool:
        """Create the transition's Event. False if the API server refused it.

        An Event tells people what status already holds: losing one must not stop a change. Where
        the namespace goes or is gone there is nobody to tell.
        """
        path = f"/api/v1/namespaces/{policy.namespace}/events"
        try:
            self._api.request("POST", path, body=render_event(policy, record))
        except ApiError as error:
            if error.status == 409 or _namespace_goes(error):
                return True
            told = about(policy.namespace, policy.name, reason=str(record.reason))
            log.warning("Event %s was not created: %s", record.reason, error, extra=told)
            return False
        return True


def _namespace_goes(error: ApiError) -> bool:
    """Nothing else that an Event needs can be missing."""
    return error.status == 404 or "NamespaceTerminating" in [
        cause.get("reason") for cause in error.causes
    ]


def event_name(policy: EvictionPolicy, record: DecisionRecord) -> str:
    """The same for the same transition of the same policy; at most 253 characters.

    Times are rounded up to whole seconds as status keeps them: a record read back is the same.
    """
    moment = record.decision_id or str(math.ceil(record.time))
    identity = f"{policy.uid}/{moment}/{record.reason}"
    # What is cut off must not leave a name that ends in a sign.
    return f"{policy.name[:200].rstrip('-.')}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def render_event(policy: EvictionPolicy, record: DecisionRecord) -> dict[str, Any]:
    """The Event (core/v1) of one transition."""
    moment = format_time(record.time)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(policy, record), "namespace": policy.namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "namespace": policy.namespace,
            "name": policy.name,
            "uid": policy.uid,
        },
        "type": "Warning" if record.reason in _WARNINGS else "Normal",
        "reason": str(record.reason),
        "message": record.message[:MESSAGE_LIMIT],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
