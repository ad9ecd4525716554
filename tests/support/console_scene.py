"""The command line against policies in memory: what a person types, and what is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from evictune import cli
from evictune.api.knobs import FILE_NAME, SCHEMA, config_map_name
from evictune.kube import ApiError, policies_path

from tests.support.fake_api import FakeApi, merge

Json = dict[str, Any]

SPEC: Json = {
    "slo": {"ttft": {"quantile": "0.99", "threshold": "800ms", "window": "10m"}},
    "mode": "Auto",
    "suspend": False,
}


class PolicyApi(FakeApi):
    """Knows collections over all namespaces, and patches of a spec."""

    def get_or_none(self, path: str) -> dict[str, Any] | None:
        """As `KubeApi` does: what is not found is None."""
        try:
            return super().get_or_none(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(
        self, path: str, selection: Mapping[str, str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The policies of the collection."""
        if path != policies_path(None):
            yield from super().items(path, selection)
            return
        self._check("GET", path)
        kind = path.rsplit("/", 1)[1]
        yield from [body for key, body in self.objects.items() if f"/{kind}/" in key]

    def request(
        self, method: str, path: str, *, body: Mapping[str, Any], content_type: str = "", **_: Any
    ) -> dict[str, Any]:
        """A merge patch of a spec."""
        self._check(method, path)
        self.requests.append((method, path, body))
        return self.put(path, merge(self.objects[path], body))


class ConsoleScene:
    """A kubeconfig with the contexts `here` (current; namespace serving) and `there` (other)."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.api = PolicyApi()
        self._capsys = capsys
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig()))
        monkeypatch.setenv("KUBECONFIG", str(self.kubeconfig))
        monkeypatch.setattr("evictune.console.place.KubeApi", lambda *_, **__: self.api)

    def policy(
        self, namespace: str, name: str, status: Json | None = None, **spec: Any
    ) -> dict[str, Any]:
        """Store a policy on the Deployment NAME-8b."""
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{name}-8b"}
        metadata = {"namespace": namespace, "name": name, "uid": f"u-{name}", "generation": 1}
        body = {
            "metadata": metadata,
            "spec": {"targetRef": target, **SPEC, **spec},
            "status": status or {},
        }
        return self.api.put(f"{policies_path(namespace)}/{name}", body)

    def document(self, namespace: str, name: str, xi: int, expires: str) -> None:
        """Store the knob document of that policy's target."""
        knobs = {"policy": "t-lru", "xiTokens": xi, "qHatTokens": 60}
        text = {"schema": SCHEMA, "revision": 3, "expires": expires, "default": knobs}
        path = f"/api/v1/namespaces/{namespace}/configmaps/"
        path += config_map_name("Deployment", f"{name}-8b")
        self.api.put(path, {"metadata": {}, "data": {FILE_NAME: json.dumps(text)}})

    def spec(self, namespace: str, name: str) -> dict[str, Any]:
        """A policy's spec as it stands."""
        found: dict[str, Any] = self.api.objects[f"{policies_path(namespace)}/{name}"]["spec"]
        return found

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        try:
            code = cli.main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def text(self, *arguments: str) -> str:
        """Standard output of what must succeed without a word on standard error."""
        code, out, err = self.run(*arguments)
        assert (code, err) == (0, "")
        return out

    def json(self, *arguments: str) -> dict[str, Any]:
        """The same with --output json, read."""
        answer: dict[str, Any] = json.loads(self.text(*arguments, "--output", "json"))
        return answer


def _kubeconfig() -> Json:
    def context(name: str, namespace: str) -> Json:
        return {"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}}

    return {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [context("here", "serving"), context("there", "other")],
        "current-context": "here",
    }


def values(xi: int | None) -> Json:
    """Values as status has them; None: stock LRU."""
    return {} if xi is None else {"xiTokens": xi, "qHatTokens": 60}


def record(
    identity: str, time: str, reason: str, message: str, change: tuple[int | None, int | None]
) -> Json:
    """A transition of status.decisions; `change`: xi before and after."""
    told = {"decisionID": identity, "time": time, "reason": reason, "message": message}
    return {**told, "from": values(change[0]), "to": values(change[1])}
