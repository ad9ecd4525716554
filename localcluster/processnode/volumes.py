"""A pod's volumes as directories below the pod's own, kept up to date with the API's objects.

ConfigMaps, Secrets, pod fields and service account tokens are written as kubelet writes them
(see `atomic`). An optional ConfigMap that vanishes empties its mount; one that is not optional
must be there before the first container starts, and when it vanishes later the files stay.
Nothing here is read-only by force: the processes run as the same user as the node.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localcluster.processnode.api import ApiError, ClusterApi, Json, ObjectCache
from localcluster.processnode.atomic import AtomicDirectory, File
from localcluster.processnode.environment import MountMap, pod_field
from localcluster.processnode.errors import VolumeNotReadyError

_DEFAULT_MODE = 0o644
_DEFAULT_TOKEN_SECONDS = 3600
# Kubelet asks for a new token after 80 % of the old one's life.
_TOKEN_RENEWAL = 0.8


class TokenSource:
    """Service account tokens bound to one pod, renewed before they expire."""

    def __init__(
        self, api: ClusterApi, pod: Json, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._pod = pod
        self._clock = clock
        self._tokens: dict[tuple[str, int], tuple[str, float]] = {}

    def token(self, audience: str, seconds: int) -> str:
        """A valid token for the audience ('' means the API server's own); raises ApiError."""
        token, renew_at = self._tokens.get((audience, seconds), ("", float("-inf")))
        if self._clock() >= renew_at:
            token = self._request(audience, seconds)
            self._tokens[audience, seconds] = (token, self._clock() + _TOKEN_RENEWAL * seconds)
        return token

    def _request(self, audience: str, seconds: int) -> str:
        metadata = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        spec = {
            "audiences": [audience] if audience else [],
            "expirationSeconds": seconds,
            "boundObjectRef": {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self._api.create(path, body)["status"]["token"])


@dataclass(frozen=True)
class _Sources:
    """Reads the payload of a volume's source. Each method raises VolumeNotReadyError, ApiError."""

    pod: Json
    objects: ObjectCache
    tokens: TokenSource

    def files(self, volume: Json) -> dict[str, File]:
        if source := volume.get("configMap"):
            return self._config_map(source, source.get("defaultMode", _DEFAULT_MODE))
        if source := volume.get("secret"):
            named = {**source, "name": source["secretName"]}
            return self._secret(named, source.get("defaultMode", _DEFAULT_MODE))
        if source := volume.get("downwardAPI"):
            return self._pod_fields(source, source.get("defaultMode", _DEFAULT_MODE))
        return self._projected(volume["projected"])

    def _projected(self, projected: Json) -> dict[str, File]:
        mode = projected.get("defaultMode", _DEFAULT_MODE)
        files: dict[str, File] = {}
        for source in projected.get("sources") or []:
            if "configMap" in source:
                files.update(self._config_map(source["configMap"], mode))
            elif "secret" in source:
                files.update(self._secret(source["secret"], mode))
            elif "downwardAPI" in source:
                files.update(self._pod_fields(source["downwardAPI"], mode))
            else:
                files.update(self._token(source["serviceAccountToken"], mode))
        return files

    def _config_map(self, source: Json, mode: int) -> dict[str, File]:
        found = self.objects.config_map(self._namespace, source["name"])
        data = {
            **{k: v.encode() for k, v in ((found or {}).get("data") or {}).items()},
            **_decoded((found or {}).get("binaryData")),
        }
        return _select(data, source, f"configmap {source['name']!r}", found is None, mode)

    def _secret(self, source: Json, mode: int) -> dict[str, File]:
        found = self.objects.secret(self._namespace, source["name"])
        data = _decoded((found or {}).get("data"))
        return _select(data, source, f"secret {source['name']!r}", found is None, mode)

    def _pod_fields(self, source: Json, mode: int) -> dict[str, File]:
        return {
            item["path"]: File(
                pod_field(self.pod, item["fieldRef"]["fieldPath"]).encode(), item.get("mode", mode)
            )
            for item in source.get("items") or []
        }

    def _token(self, source: Json, mode: int) -> dict[str, File]:
        seconds = source.get("expirationSeconds", _DEFAULT_TOKEN_SECONDS)
        token = self.tokens.token(source.get("audience", ""), seconds)
        return {source["path"]: File(token.encode(), mode)}

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])


def _decoded(data: dict[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in (data or {}).items()}


def _select(
    data: dict[str, bytes], source: Json, name: str, missing: bool, mode: int
) -> dict[str, File]:
    """The files that a source's `items` ask for (all, if it has none)."""
    optional = bool(source.get("optional"))
    if missing and not optional:
        raise VolumeNotReadyError(f"{name} not found")
    items = source.get("items")
    if not items:
        return {key: File(content, mode) for key, content in data.items()}
    files = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], item.get("mode", mode))
        elif not optional:
            raise VolumeNotReadyError(f"{name} has no key {item['key']!r}")
    return files


class PodVolumes:
    """All volumes of one pod. `directory` holds one directory a volume."""

    def __init__(
        self, pod: Json, directory: Path, objects: ObjectCache, tokens: TokenSource
    ) -> None:
        self._pod = pod
        self._directory = directory
        self._objects = objects
        self._tokens = tokens
        self._written: dict[str, AtomicDirectory] = {}

    def sync(self, pod: Json) -> None:
        """Bring every volume up to date with the API, given the pod as it is now.

        Raises VolumeNotReadyError or ApiError for the first volume that cannot be read, after
        all others are done; a volume that cannot be read keeps what it holds.
        """
        sources = _Sources(pod, self._objects, self._tokens)
        problem: VolumeNotReadyError | ApiError | None = None
        for volume in self._pod["spec"].get("volumes") or []:
            try:
                self._sync_one(volume, sources)
            except (VolumeNotReadyError, ApiError) as error:
                problem = problem or error
        if problem:
            raise problem

    def mounts(self, container: Json) -> MountMap:
        """Where each mountPath of a container really is."""
        volumes = {v["name"]: v for v in self._pod["spec"].get("volumes") or []}
        return MountMap(
            {
                mount["mountPath"]: str(self._place(volumes[mount["name"]]))
                for mount in container.get("volumeMounts") or []
            }
        )

    def _sync_one(self, volume: Json, sources: _Sources) -> None:
        place = self._place(volume)
        if "hostPath" in volume:
            _check_host_path(place, volume["hostPath"].get("type", ""))
        elif _is_written(volume):
            files = sources.files(volume)
            if volume["name"] not in self._written:
                self._written[volume["name"]] = AtomicDirectory(place)
            self._written[volume["name"]].write(files)
        else:  # emptyDir
            place.mkdir(parents=True, exist_ok=True)

    def _place(self, volume: Json) -> Path:
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        return self._directory / str(volume["name"])


def _is_written(volume: Json) -> bool:
    return any(kind in volume for kind in ("configMap", "secret", "downwardAPI", "projected"))


def _check_host_path(path: Path, kind: str) -> None:
    if kind == "DirectoryOrCreate":
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise VolumeNotReadyError(f"hostPath {path} cannot be made: {error}") from error
    elif kind == "Directory" and not path.is_dir():
        raise VolumeNotReadyError(f"hostPath {path} is not a directory")
    elif kind == "File" and not path.is_file():
        raise VolumeNotReadyError(f"hostPath {path} is not a file")
