"""One operator acts: the one that holds the Lease. Others wait until it is given up or runs out.

The Kubernetes library's leader election runs in a thread of its own. Settled here is what it leaves
open: every call has a time limit; how long a lease was not renewed is measured by a clock that
nobody sets; whoever was superseded stops at once; a clean stop gives the lease up; and the log has
a line when the lease is got or lost, not one a renewal.

An API server that is away ends no leadership: nobody else can take the lease meanwhile. But nothing
is written from the time at which renewing is overdue until it succeeds (`Election.leading`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

USER_AGENT = "evictune-election"
# Seconds, client-go's defaults: others take a lease that was not renewed for LEASE_DURATION;
# its holder stops writing after RENEW_DEADLINE, before they do.
LEASE_DURATION = 15
RENEW_DEADLINE = 10
RETRY_PERIOD = 2
# To connect, to answer: two calls a renewal, and a second attempt before the deadline.
CALL_LIMITS = (2.0, 3.0)

_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """Another operator holds the lease: this one has to start again, as a follower."""


class _GivenUpError(Exception):
    """This operator stops: its thread is to end."""


def own_namespace() -> str:
    """Where the lease lies unless configured: the pod's namespace; "default" outside a cluster."""
    try:
        mounted = _ACCOUNT_NAMESPACE.read_text("utf-8").strip()
    except OSError:
        mounted = ""  # Not in a pod.
    return os.environ.get("POD_NAMESPACE") or mounted or "default"


def own_identity() -> str:
    """Who this operator is: the pod, whose restarted container takes its own lease over at once.

    Outside a pod every process is another one: two of one host must not both think they hold it.
    """
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{secrets.token_hex(4)}"


class LeaseCalls:
    """What LeaseLock calls, with a time limit; a new problem is told once, not at each attempt."""

    def __init__(self, configuration: client.Configuration) -> None:
        configuration.retries = False
        api_client = client.ApiClient(configuration)
        api_client.user_agent = USER_AGENT
        self._api = client.CoordinationV1Api(api_client)
        self._problem = ""

    def read_namespaced_lease(self, name: str, namespace: str) -> Any:
        """The Lease. Raises ApiException."""
        return self._call(self._api.read_namespaced_lease, name, namespace)

    def create_namespaced_lease(self, namespace: str, body: Any) -> Any:
        """The Lease created. Raises ApiException."""
        return self._call(self._api.create_namespaced_lease, namespace, body)

    def replace_namespaced_lease(self, name: str, namespace: str, body: Any) -> Any:
        """The Lease replaced, unless it changed since it was read. Raises ApiException."""
        return self._call(self._api.replace_namespaced_lease, name, namespace, body)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            answer = method(*arguments, _request_timeout=CALL_LIMITS)
        except urllib3.exceptions.HTTPError as error:
            self._tell(f"API server: {error}")
            raise ApiException(status=0, reason=str(error)) from error
        except ApiException as error:
            # No lease yet, or somebody else was faster: nothing is wrong. (A namespace that is
            # not there answers 404 to the creation only.)
            expected = error.status == 409 or (
                error.status == 404 and method == self._api.read_namespaced_lease
            )
            if not expected:
                self._tell(f"{error.reason} ({error.status}): {error.body}")
            raise
        self._problem = ""
        return answer

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("the Lease cannot be read or written: %s", problem)
        self._problem = problem


class TimedLeaseLock(LeaseLock):  # type: ignore[misc]
    """The library's lock of one Lease, with its age measured by `clock`, a monotonic one.

    The library compares wall clock times: a clock set forward would take a lease that is held, and
    one set back would wait for as long as it was set back.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        identity: str,
        calls: LeaseCalls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, namespace, identity)
        self.api_instance = calls
        self._clock = clock
        self._turn = threading.Lock()
        self._given_up = False
        self._led = False
        self._renewed = -float(RENEW_DEADLINE)
        self._rival: tuple[str, str] | None = None
        self._rival_since = 0.0

    @property
    def where(self) -> str:
        """NAMESPACE/NAME of the Lease."""
        return f"{self.namespace}/{self.name}"

    def fresh(self) -> bool:
        """Whether the lease was renewed, or got, within the deadline."""
        return not self._given_up and self._clock() - self._renewed < RENEW_DEADLINE

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """The library's record of the Lease; without a holder once another's has run out.

        Raises LeaseLostError where somebody else holds what this operator has held.
        """
        with self._turn:
            self._go_on()
            found, record = super().get(name, namespace)
            if found:
                self._judge(record)
            return found, record

    def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Create the Lease; whether it is ours."""
        return self._renew(
            lambda: super(TimedLeaseLock, self).create(name, namespace, election_record)
        )

    def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Renew the Lease, or take it from nobody; whether it is ours."""
        if self._rival is not None:
            return False  # By the wall clock it ran out, which was set forward.
        return self._renew(
            lambda: super(TimedLeaseLock, self).update(name, namespace, updated_record)
        )

    def give_up(self) -> None:
        """Let the next operator have the lease at once; nothing is renewed afterwards."""
        with self._turn:
            held = self._led and not self._given_up
            self._given_up = True
            if held:
                self._hand_over()

    def supersede(self) -> None:
        """Somebody else holds the lease: nothing is renewed or given up afterwards."""
        self._given_up = True

    def _go_on(self) -> None:
        if self._given_up:
            raise _GivenUpError

    def _renew(self, write: Callable[[], bool]) -> bool:
        with self._turn:
            self._go_on()
            began = self._clock()
            written = write()
            if written:
                self._led, self._renewed = True, began
            return written

    def _judge(self, record: Any) -> None:
        holder = record.holder_identity
        if holder is None or holder == self.identity:
            self._rival = None
            return
        if self._led:
            raise LeaseLostError(f"the Lease {self.where} is now held by {holder}")
        rival = (holder, record.renew_time)
        if self._rival != rival:
            if self._rival is None or self._rival[0] != holder:
                log.info("%s holds the Lease %s: waiting as %s", holder, self.where, self.identity)
            self._rival, self._rival_since = rival, self._clock()
        elif self._clock() - self._rival_since >= float(record.lease_duration or LEASE_DURATION):
            self._rival = record.holder_identity = None

    def _hand_over(self) -> None:
        """As client-go does: the holder becomes empty."""
        found, record = super().get(self.name, self.namespace)
        if not found or record.holder_identity != self.identity:
            return
        lease = self.lease_reference
        lease.spec.holder_identity, lease.spec.lease_duration_seconds = "", 1
        try:
            self.api_instance.replace_namespaced_lease(self.name, self.namespace, lease)
        except ApiException as error:
            log.warning(
                "the Lease %s could not be given up (%s): the next operator waits up to %d s",
                self.where,
                error.reason,
                LEASE_DURATION,
            )
            return
        log.info("gave up the Lease %s", self.where)


class Election:
    """One candidate. Waits, holds and gives up the lease; told to the event loop it started in."""

    def __init__(self, lock: TimedLeaseLock) -> None:
        self._lock = lock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._won = asyncio.Event()
        self.over = asyncio.Event()
        self.lost: Exception | None = None

    def start(self) -> None:
        """Stand for election, in a thread. Called inside the running event loop."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="leader election", daemon=True).start()

    async def won(self) -> None:
        """Until this operator holds the lease."""
        await self._won.wait()

    def leading(self) -> bool:
        """Whether this operator may write now."""
        return self._lock.fresh()

    def give_up(self) -> None:
        """Stop standing; who held the lease lets the next one have it at once."""
        self._lock.give_up()

    def _run(self) -> None:
        config = Config(
            self._lock, LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, self._started, self._overdue
        )
        try:
            while True:
                LeaderElection(config).run()
        except _GivenUpError:
            return
        except LeaseLostError as error:
            self.lost = error
        # Whatever it is: a lease that nobody renews any more must not be acted upon.
        except Exception as error:
            log.exception("the leader election failed")
            self.lost = LeaseLostError(f"the leader election failed: {error}")
        self._lock.supersede()
        self._tell(self.over)

    def _started(self) -> None:
        log.info("leading: %s holds the Lease %s", self._lock.identity, self._lock.where)
        self._tell(self._won)

    def _overdue(self) -> None:
        log.warning(
            "the Lease %s was not renewed for %d s: nothing is written until it is",
            self._lock.where,
            RENEW_DEADLINE,
        )

    def _tell(self, event: asyncio.Event) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            log.debug("the event loop has ended before the election")
