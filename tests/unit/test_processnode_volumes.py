"""Volumes on disk: kubelet's layout and swap, optional objects, tokens."""

from __future__ import annotations

import base64
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from localcluster.processnode.api import ApiError, ObjectCache
from localcluster.processnode.atomic import AtomicDirectory, File
from localcluster.processnode.errors import VolumeNotReadyError
from localcluster.processnode.volumes import PodVolumes, TokenSource

METADATA = {"name": "web", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"}}


class FakeApi:
    """Serves objects by path; `error` is raised instead when set. Counts requests."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.error: ApiError | None = None
        self.requests: list[tuple[str, str, Any]] = []

    def put(self, kind: str, name: str, **data: Any) -> None:
        self.objects[f"/api/v1/namespaces/shop/{kind}/{name}"] = data

    def drop(self, kind: str, name: str) -> None:
        del self.objects[f"/api/v1/namespaces/shop/{kind}/{name}"]

    def get(self, path: str) -> Any:
        self.requests.append(("GET", path, None))
        if self.error:
            raise self.error
        if path not in self.objects:
            raise ApiError(404, path)
        return self.objects[path]

    def create(self, path: str, body: Any) -> Any:
        self.requests.append(("POST", path, body))
        return {"status": {"token": f"token-{len(self.requests)}"}}


class Mounted:
    """One volume `v` of a pod, with an API behind it."""

    def __init__(self, directory: Path, **volume: Any) -> None:
        self.api = FakeApi()
        self.now = 0.0
        self.pod: dict[str, Any] = {
            "metadata": METADATA,
            "spec": {"serviceAccountName": "sa", "volumes": [{"name": "v", **volume}]},
        }
        objects = ObjectCache(self.api, 0.0, lambda: self.now)  # type: ignore[arg-type]
        tokens = TokenSource(self.api, self.pod, lambda: self.now)  # type: ignore[arg-type]
        self.volumes = PodVolumes(self.pod, directory, objects, tokens)
        self.path = directory / "v"

    def sync(self) -> dict[str, str]:
        """The files that a program sees after a sync."""
        self.now += 1
        self.volumes.sync(self.pod)
        return self.files()

    def files(self) -> dict[str, str]:
        visible = [entry for entry in self.path.iterdir() if not entry.name.startswith("..")]
        files = [f for e in visible for f in ([e] if e.is_file() else e.iterdir())]
        return {str(file.relative_to(self.path)): file.read_text() for file in files}


def config_map(name: str = "m", **more: Any) -> dict[str, Any]:
    return {"configMap": {"name": name, **more}}


def target(link: Path) -> str:
    return str(link.readlink())


def test_the_layout_is_kubelets(tmp_path: Path) -> None:
    AtomicDirectory(tmp_path).write({"a": File(b"1"), "d/b": File(b"2", 0o600)})
    assert target(tmp_path / "a") == "..data/a"
    assert target(tmp_path / "d") == "..data/d"
    version = target(tmp_path / "..data")
    assert version.startswith("..20")
    assert (tmp_path / version / "d" / "b").read_bytes() == b"2"
    assert stat.S_IMODE((tmp_path / "d" / "b").stat().st_mode) == 0o600


def test_a_change_swaps_one_link_and_leaves_no_old_version(tmp_path: Path) -> None:
    directory = AtomicDirectory(tmp_path)
    directory.write({"a": File(b"1"), "gone": File(b"1")})
    before = target(tmp_path / "..data")
    assert directory.write({"a": File(b"2"), "new": File(b"2")})
    after = target(tmp_path / "..data")
    assert after != before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([after, "..data", "a", "new"])
    assert (tmp_path / "a").read_bytes() == b"2"


def test_an_equal_payload_changes_nothing(tmp_path: Path) -> None:
    directory = AtomicDirectory(tmp_path)
    directory.write({"a": File(b"1")})
    before = target(tmp_path / "..data")
    assert not directory.write({"a": File(b"1")})
    assert target(tmp_path / "..data") == before


def test_a_reader_never_sees_half_a_change(tmp_path: Path) -> None:
    directory = AtomicDirectory(tmp_path)
    directory.write({"a": File(b"0"), "b": File(b"0")})

    def write() -> None:
        for number in range(40):
            content = str(number).encode()
            directory.write({"a": File(content), "b": File(content)})

    writer = threading.Thread(target=write)
    writer.start()
    complete = 0
    while writer.is_alive():
        version = tmp_path / target(tmp_path / "..data")
        try:
            pair = {(version / name).read_bytes() for name in "ab"}
        except FileNotFoundError:  # replaced in the meantime, as a whole
            continue
        assert len(pair) == 1
        complete += 1
    writer.join()
    assert complete > 0


def test_a_config_map_follows_its_object(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, **config_map())
    binary = base64.b64encode(b"raw").decode()
    mounted.api.put("configmaps", "m", data={"k": "1"}, binaryData={"b": binary})
    assert mounted.sync() == {"k": "1", "b": "raw"}
    mounted.api.put("configmaps", "m", data={"k": "2"})
    assert mounted.sync() == {"k": "2"}


def test_an_optional_config_map_may_come_and_go(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, **config_map(optional=True))
    assert mounted.sync() == {}
    assert (mounted.path / "..data").is_dir()
    mounted.api.put("configmaps", "m", data={"k": "1"})
    assert mounted.sync() == {"k": "1"}
    mounted.api.drop("configmaps", "m")
    assert mounted.sync() == {}


def test_a_required_config_map_is_waited_for_and_then_kept(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, **config_map())
    with pytest.raises(VolumeNotReadyError, match="configmap 'm' not found"):
        mounted.sync()
    mounted.api.put("configmaps", "m", data={"k": "1"})
    mounted.sync()
    mounted.api.drop("configmaps", "m")
    with pytest.raises(VolumeNotReadyError):
        mounted.sync()
    assert mounted.files() == {"k": "1"}


def test_an_unreachable_api_server_is_not_a_config_map_that_vanished(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, **config_map(optional=True))
    mounted.api.put("configmaps", "m", data={"k": "1"})
    mounted.sync()
    mounted.api.error = ApiError(None, "connection refused")
    assert mounted.sync() == {"k": "1"}


def test_before_the_first_answer_an_unreachable_api_server_is_an_error(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, **config_map(optional=True))
    mounted.api.error = ApiError(None, "connection refused")
    with pytest.raises(ApiError, match="connection refused"):
        mounted.sync()


def test_items_choose_keys_paths_and_modes(tmp_path: Path) -> None:
    items = [{"key": "k", "path": "d/file", "mode": 0o400}]
    mounted = Mounted(tmp_path, **config_map(items=items))
    mounted.api.put("configmaps", "m", data={"k": "1", "other": "2"})
    assert mounted.sync() == {"d/file": "1"}
    assert stat.S_IMODE((mounted.path / "d" / "file").stat().st_mode) == 0o400
    mounted.api.put("configmaps", "m", data={"other": "2"})
    with pytest.raises(VolumeNotReadyError, match="has no key 'k'"):
        mounted.sync()


def test_a_secret_is_decoded(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, secret={"secretName": "s", "defaultMode": 0o600})
    mounted.api.put("secrets", "s", data={"password": base64.b64encode(b"x").decode()})
    assert mounted.sync() == {"password": "x"}
    assert stat.S_IMODE((mounted.path / "password").stat().st_mode) == 0o600


def test_pod_fields_follow_the_pod(tmp_path: Path) -> None:
    items = [{"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}]
    mounted = Mounted(tmp_path, downwardAPI={"items": items})
    assert mounted.sync() == {"app": "web"}
    mounted.pod = {**mounted.pod, "metadata": {**METADATA, "labels": {"app": "other"}}}
    assert mounted.sync() == {"app": "other"}


def test_a_token_is_bound_to_the_pod_and_renewed_before_it_expires(tmp_path: Path) -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}}
    mounted = Mounted(tmp_path, projected={"sources": [source]})
    assert mounted.sync() == {"token": "token-1"}
    method, path, body = mounted.api.requests[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/shop/serviceaccounts/sa/token")
    assert body["spec"]["boundObjectRef"]["uid"] == "u-1"
    assert body["spec"]["expirationSeconds"] == 1000
    mounted.now = 799
    assert mounted.sync() == {"token": "token-1"}
    assert mounted.sync() == {"token": "token-2"}


def test_an_empty_dir_is_made_once_and_kept(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, emptyDir={})
    mounted.sync()
    (mounted.path / "file").write_text("kept")
    assert mounted.sync() == {"file": "kept"}


def test_a_host_path_is_used_where_it_is_and_checked(tmp_path: Path) -> None:
    wanted = tmp_path / "host"
    mounted = Mounted(tmp_path, hostPath={"path": str(wanted), "type": "Directory"})
    with pytest.raises(VolumeNotReadyError, match="is not a directory"):
        mounted.sync()
    wanted.mkdir()
    mounted.volumes.sync(mounted.pod)
    container = {"volumeMounts": [{"name": "v", "mountPath": "/models"}]}
    assert mounted.volumes.mounts(container).rewrite("/models/x") == f"{wanted}/x"


def test_one_bad_volume_does_not_stop_the_others(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, **config_map())
    mounted.pod["spec"]["volumes"].append({"name": "w", "emptyDir": {}})
    with pytest.raises(VolumeNotReadyError):
        mounted.sync()
    assert (tmp_path / "w").is_dir()
