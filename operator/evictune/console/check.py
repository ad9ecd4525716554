"""`evictune check`: whether the operator that is installed works; `helm test` runs it.

It looks at what a person would look at after an install: the definition is served and is this
version's, one operator renews its Lease and answers, and its account may do what it has to.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evictune.api.crd import crd
from evictune.api.policy import GROUP, KIND, VERSION
from evictune.api.rights import CLUSTER_RIGHTS, RIGHTS, Right, lease_rights
from evictune.api.sources import OperatorConfiguration
from evictune.console.refusals import missing_definition
from evictune.kube import ApiError, KubeApi

PAUSE = 1.0
HTTP_TIMEOUT = 3.0
_FIELDS_SHOWN = 5
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Json = Mapping[str, Any]


class NotYetError(Exception):
    """What is not as it should be, with the remedy; it may still come about."""


@dataclass
class Installation:
    """One operator's installation. `namespace`: where it runs."""

    api: KubeApi
    namespace: str
    configuration: OperatorConfiguration
    seen: str | None = None  # when the Lease was renewed, as it was read first

    def checks(self) -> dict[str, Callable[[], str]]:
        """What works, in words, by name. Each raises NotYetError or ApiError."""
        return {"definition": self.definition, "lease": self.lease, "operator": self.operator}

    def definition(self) -> str:
        """The definition that is served has every field that this version knows."""
        served = self.api.get_or_none(f"/openapi/v3/apis/{GROUP}/{VERSION}")
        schemas = ((served or {}).get("components") or {}).get("schemas") or {}
        kinds = {name.rpartition(".")[2]: schema for name, schema in schemas.items()}
        if KIND not in kinds:
            raise NotYetError(missing_definition())
        (version,) = crd()["spec"]["versions"]
        wanted = version["schema"]["openAPIV3Schema"]
        lacking = sorted(set(_fields(wanted)) - set(_fields(kinds[KIND])))
        if lacking:
            more = ", ..." * (len(lacking) > _FIELDS_SHOWN)
            raise NotYetError(
                f"the cluster's definition is another version's, without "
                f"{', '.join(lacking[:_FIELDS_SHOWN])}{more}: evictune crd | kubectl apply "
                "--server-side -f -"
            )
        return f"{GROUP}/{VERSION} is served, with every field of this version"

    def lease(self) -> str:
        """The Lease is renewed while we look: no clock but the operator's own is asked."""
        spec = self._lease()
        holder, renewed = spec["holderIdentity"], str(spec.get("renewTime"))
        if self.seen is None:
            self.seen = renewed
        if renewed == self.seen:
            raise NotYetError(f"{holder} holds {self._where} and does not renew it: see its log")
        return f"{holder} holds {self._where} and renews it"

    def operator(self) -> str:
        """The pod that holds the Lease answers its liveness probe."""
        name = self._lease()["holderIdentity"]
        pod = self.api.get_or_none(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        address = ((pod or {}).get("status") or {}).get("podIP")
        if not address:
            raise NotYetError(
                f"{name} holds {self._where}, and no pod of namespace {self.namespace} has that "
                "name and an address"
            )
        host = f"[{address}]" if ":" in address else address
        port = self.configuration.liveness_address.rpartition(":")[2]
        url = f"http://{host}:{port}/healthz"
        _ask(url)
        return f"{name} answers {url}"

    def _lease(self) -> Json:
        name = self.configuration.lease_name
        namespace, _, _ = self._where.partition("/")
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        spec: Json = (self.api.get_or_none(path) or {}).get("spec") or {}
        if not spec.get("holderIdentity"):
            raise NotYetError(f"nobody holds {self._where}: no operator is running")
        return spec

    @property
    def _where(self) -> str:
        configuration = self.configuration
        return f"{configuration.lease_namespace or self.namespace}/{configuration.lease_name}"


@dataclass(frozen=True)
class Account:
    """Who asks: whether it may do what the operator does."""

    api: KubeApi
    namespace: str
    configuration: OperatorConfiguration

    def checks(self) -> dict[str, Callable[[], str]]:
        """As of `Installation`."""
        return {"rights": self.rights}

    def rights(self) -> str:
        """Everything that the operator does is allowed."""
        refused = [
            f"{right} in {f'namespace {namespace}' if namespace else 'all namespaces'}"
            for namespace, right in self._wanted()
            if not self._may(namespace, right)
        ]
        if refused:
            raise NotYetError(f"this account may not {', nor '.join(refused)}")
        where = ", ".join(self.configuration.namespaces) or "all namespaces"
        return f"this account may do what the operator does in {where}"

    def _wanted(self) -> Iterator[tuple[str, Right]]:
        namespaces = self.configuration.namespaces
        for namespace in namespaces or ("",):
            yield from ((namespace, right) for right in RIGHTS)
        if not namespaces:
            yield from (("", right) for right in CLUSTER_RIGHTS)
        namespace = self.configuration.lease_namespace or self.namespace
        yield from ((namespace, right) for right in lease_rights(self.configuration.lease_name))

    def _may(self, namespace: str, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "namespace": namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "name": right.name,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        return bool(self.api.request("POST", _REVIEWS, body=body)["status"]["allowed"])


def run(
    checks: Mapping[str, Callable[[], str]],
    seconds: float,
    tell: Callable[[str], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Whether all is well; each check is repeated for as long as that. `tell` gets a line each."""
    well = True
    deadline = clock() + seconds
    for name, check in checks.items():
        while True:
            try:
                line = f"ok      {name}: {check()}"
            except (NotYetError, ApiError) as error:
                if clock() < deadline:
                    sleep(PAUSE)
                    continue
                line, well = f"FAILED  {name}: {error}", False
            tell(line)
            break
    return well


def _fields(schema: Json, path: str = "") -> Iterator[str]:
    """Every field of a schema, such as spec.slo.ttft; items of lists have their list's path."""
    if isinstance(schema.get("items"), Mapping):
        yield from _fields(schema["items"], path)
    for name, inner in (schema.get("properties") or {}).items():
        below = f"{path}.{name}" if path else name
        # What every object has is Kubernetes' own.
        if below not in ("apiVersion", "kind", "metadata"):
            yield below
            yield from _fields(inner, below)


def _ask(url: str) -> None:
    """Raises NotYetError unless the page is there."""
    # A pod's address means something in the cluster only, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=HTTP_TIMEOUT):
            return
    except urllib.error.HTTPError as error:
        raise NotYetError(f"{url} answers {error.code}") from error
    except OSError as error:
        cause = getattr(error, "reason", error)
        raise NotYetError(
            f"{url} does not answer ({cause}): ask from within the cluster, as `helm test` does"
        ) from error
