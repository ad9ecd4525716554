"""`evictune wire`: a workload's manifest with the plugin's volume, environment and port added.

Documents that need nothing, and manifests already wired, come out as they went in, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from evictune.api.knobs import config_map_name
from evictune.api.reasons import Reason
from evictune.api.yaml_text import Loader, problem_of
from evictune.observe.containers import ContainerError, find_engine

KINDS = ("Deployment", "StatefulSet")
KNOBS_DIR = "/etc/evictune/knobs"
PLUGIN_DIR = "/opt/evictune/plugin"
STATE_DIR = "/var/lib/evictune"
METRICS_PORT = 9410
_KNOBS_VOLUME = "evictune-knobs"
_PLUGIN_VOLUME = "evictune-plugin"
_STATE_VOLUME = "evictune-state"
_COPY_DIR = "/evictune-plugin"
_PORT_NAME = "evictune"
_OUR_MOUNTS = {
    KNOBS_DIR: _KNOBS_VOLUME,
    PLUGIN_DIR: _PLUGIN_VOLUME,
    STATE_DIR: _STATE_VOLUME,
}
# By which field the items of a list that wiring may change are told apart.
_KEYS = {
    "volumes": "name",
    "initContainers": "name",
    "containers": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "ports": "containerPort",
}

Object = dict[str, Any]


class WiringError(ValueError):
    """A manifest that cannot be wired, with the remedy."""


@dataclass(frozen=True)
class Wiring:
    """How a workload is to be wired.

    Attributes:
        plugin_image: Copied in by an init container; None: the engine's image has the plugin.
        container: The engine's, where it is not obvious.
        memory: With the folder that a change of the memory fraction needs.
    """

    plugin_image: str | None = None
    container: str | None = None
    memory: bool = False


def wire(text: str, wiring: Wiring) -> str:
    """The manifest with every workload that runs an engine wired. Raises WiringError."""
    wired, seen = [], []
    problems: list[WiringError] = []
    found = False
    for chunk, document in _documents(text):
        kind = document.get("kind") if isinstance(document, dict) else None
        seen.append(str(kind))
        if kind in KINDS:
            try:
                chunk = _wire_workload(chunk, document, wiring)
                found = True
            except _NoEngineError as error:
                problems.append(error)
        wired.append(chunk)
    if found:
        return "".join(wired)
    if problems:
        raise problems[0]
    kinds = ", ".join(kind for kind in seen if kind != "None") or "nothing"
    raise WiringError(
        f"no workload to wire: the manifest holds {kinds}; evictune wires {' and '.join(KINDS)}"
    )


def check(text: str, wiring: Wiring) -> dict[str, list[str]]:
    """Each workload that runs an engine, such as "Deployment prod/chat-8b", and what it lacks.

    What the API server adds on its own, such as a volume's defaultMode, is no difference. Raises
    WiringError.
    """
    wired = wire(text, wiring)
    found: dict[str, list[str]] = {}
    for (_, before), (_, after) in zip(_documents(text), _documents(wired), strict=True):
        if not isinstance(before, dict) or before.get("kind") not in KINDS:
            continue
        pod = before["spec"]["template"]["spec"]
        try:
            _engine(pod, wiring, "")
        except _NoEngineError:
            continue
        metadata = before["metadata"]
        place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        lacking = _lacking(pod, after["spec"]["template"]["spec"], "")
        found.setdefault(f"{before['kind']} {place}{metadata['name']}", []).extend(lacking)
    return found


def _lacking(before: Any, after: Any, place: str) -> Iterator[str]:
    """What `after` has and `before` has not, in words, by the names of lists' items."""
    for field, wanted in after.items():
        present = before.get(field)
        if present == wanted or wanted == []:
            continue
        if not isinstance(wanted, list):
            yield f"{place}{field} is {present!r}, not {wanted!r}"
            continue
        key = _KEYS[field]
        by_key = {item.get(key): item for item in present or []}
        for item in wanted:
            where = f"{place}{field}[{item[key]}]"
            if item[key] not in by_key:
                yield f"{where} is missing"
            elif field == "containers":
                yield from _lacking(by_key[item[key]], item, f"{where}.")
            elif by_key[item[key]] != item:
                yield f"{where} differs"


class _NoEngineError(WiringError):
    """This workload runs no engine; another one of the same manifest may."""


def _documents(text: str) -> Iterator[tuple[str, Any]]:
    """Each YAML document's text and content."""
    line = 0
    for chunk in re.split(r"(?m)^(?=---(?:\s|$))", text):
        try:
            yield chunk, _unshared(yaml.load(chunk, _Loader))
        except yaml.YAMLError as error:
            where, problem = problem_of(error, line)
            told = f"{where}: {problem}" if where else problem
            raise WiringError(f"not YAML: {told}") from error
        except RecursionError as error:
            raise WiringError("not a manifest: it is nested without end") from error
        line += chunk.count("\n")


class _Loader(Loader):
    """What only YAML 1.1 takes for a date or a number to the base 60 is text, as for kubectl."""


_BASE_60 = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")
_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "-+0123456789":
    _Loader.yaml_implicit_resolvers[_first].insert(0, ("tag:yaml.org,2002:str", _BASE_60))


def _unshared(value: Any) -> Any:
    """A copy in which no part stands twice: an alias must not be changed with its anchor."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _wire_workload(chunk: str, document: Object, wiring: Wiring) -> str:
    """The document's text, changed only if something had to be added."""
    before = yaml.safe_dump(document)
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise WiringError(
            f"{document['kind']}: metadata.name is needed: it names the ConfigMap to mount"
        )
    what = f"{document['kind']} {name}"
    pod = _pod_spec(document, what)
    container = _engine(pod, wiring, what)
    _add_knobs(pod, container, config_map_name(document["kind"], name))
    if wiring.memory:
        _add_state(pod, container)
    if wiring.plugin_image:
        _add_plugin(pod, container, wiring.plugin_image, what)
    if yaml.safe_dump(document) == before:
        return chunk
    return _head(chunk) + dump(document)


def _pod_spec(document: Object, what: str) -> Object:
    """The pod's spec, looked over so far as it will be read or changed."""
    try:
        pod: Object = document["spec"]["template"]["spec"]
        containers = list_in(pod, "containers")
    except (KeyError, TypeError, AttributeError) as error:
        raise WiringError(f"{what}: spec.template.spec is needed") from error
    if not containers or not all(isinstance(each.get("name"), str) for each in containers):
        raise WiringError(f"{what}: spec.template.spec.containers with their names are needed")
    _check_lists(pod, ("volumes", "initContainers"), what)
    for each in containers:
        _check_container(each, f"{what}: container {each['name']}")
    return pod


def _check_lists(parent: Object, fields: Sequence[str], what: str) -> None:
    """Raises WiringError for a list that is none, or that lacks what tells its items apart."""
    for field in fields:
        key = _KEYS[field]
        if parent.get(field) is not None:
            for item in list_in(parent, field):
                if not isinstance(item.get(key), str | int):
                    raise WiringError(f"{what}: {field} has an item without {key}: {item!r:.60}")


def _check_container(container: Object, what: str) -> None:
    """Raises WiringError for what cannot be read or would clash with what is added."""
    _check_lists(container, ("env", "ports", "volumeMounts"), what)
    for mount in container.get("volumeMounts") or ():
        ours = _OUR_MOUNTS.get(str(mount["mountPath"]).rstrip("/"))
        if ours and mount.get("name") != ours:
            raise WiringError(
                f"{what}: volume {mount.get('name')!r} is mounted at {mount['mountPath']}, where "
                f"{ours} belongs: mount it elsewhere"
            )
    for port in container.get("ports") or ():
        if port.get("name") == _PORT_NAME and port["containerPort"] != METRICS_PORT:
            raise WiringError(
                f"{what}: port {port['containerPort']} is called {_PORT_NAME!r}, as the plugin's "
                f"port {METRICS_PORT} is: give it another name"
            )
    for field in ("command", "args"):
        words = container.get(field)
        if words is not None and not isinstance(words, list):
            raise WiringError(f"{what}: {field} must be a list of strings, not {words!r:.60}")


def _engine(pod: Object, wiring: Wiring, what: str) -> Object:
    """The engine's container, known by what it runs unless it was named."""
    containers: list[Object] = pod["containers"]
    by_name = {each["name"]: each for each in containers}
    names = ", ".join(by_name)
    if wiring.container is not None and wiring.container not in by_name:
        raise WiringError(f"{what}: no container {wiring.container!r}; there are: {names}")
    try:
        return by_name[find_engine(containers, wiring.container).name]
    except ContainerError as error:
        if error.reason is Reason.NO_ENGINE_CONTAINER:
            raise _NoEngineError(
                f"{what}: no container looks like an engine ({names}): name it with --container"
            ) from error
        raise WiringError(
            f"{what}: more than one container looks like an engine ({names}): "
            "choose with --container"
        ) from error


def _add_knobs(pod: Object, container: Object, config_map: str) -> None:
    """The knob document's mount, the pod's name, the plugin's port."""
    volume = {"name": _KNOBS_VOLUME, "configMap": {"name": config_map, "optional": True}}
    mount = {"name": _KNOBS_VOLUME, "mountPath": KNOBS_DIR, "readOnly": True}
    pod_name = {"fieldRef": {"fieldPath": "metadata.name"}}
    _upsert(list_in(pod, "volumes"), "name", volume)
    _upsert(list_in(container, "volumeMounts"), "mountPath", mount)
    env = list_in(container, "env")
    _upsert(env, "name", {"name": "EVICTUNE_KNOBS_DIR", "value": KNOBS_DIR})
    _upsert(env, "name", {"name": "EVICTUNE_POD_NAME", "valueFrom": pod_name})
    ports = list_in(container, "ports")
    # A port of this number keeps its name: a Service may refer to it.
    if all(port["containerPort"] != METRICS_PORT for port in ports):
        ports.append({"name": _PORT_NAME, "containerPort": METRICS_PORT})


def _add_state(pod: Object, container: Object) -> None:
    """The folder that outlives the container, where the plugin writes what it is about to try."""
    _upsert(list_in(pod, "volumes"), "name", {"name": _STATE_VOLUME, "emptyDir": {}})
    mount = {"name": _STATE_VOLUME, "mountPath": STATE_DIR}
    _upsert(list_in(container, "volumeMounts"), "mountPath", mount)


def _add_plugin(pod: Object, container: Object, image: str, what: str) -> None:
    """An init container that copies the plugin, and the path on which Python finds it."""
    resources = {"cpu": "100m", "memory": "64Mi"}
    copier = {
        "name": _PLUGIN_VOLUME,
        "image": image,
        "command": ["cp", "-r", f"{PLUGIN_DIR}/.", f"{_COPY_DIR}/"],
        # Equal, so that a pod of the class Guaranteed stays one.
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": _restricted(pod),
        "volumeMounts": [{"name": _PLUGIN_VOLUME, "mountPath": _COPY_DIR}],
    }
    _upsert(list_in(pod, "volumes"), "name", {"name": _PLUGIN_VOLUME, "emptyDir": {}})
    _upsert(list_in(pod, "initContainers"), "name", copier)
    mount = {"name": _PLUGIN_VOLUME, "mountPath": PLUGIN_DIR, "readOnly": True}
    _upsert(list_in(container, "volumeMounts"), "mountPath", mount)
    _add_python_path(list_in(container, "env"), what)


def _restricted(pod: Object) -> Object:
    """What the Pod Security Standard "restricted" asks of a container.

    A pod that conforms to it must not be refused for what was added to it. No user is named: the
    image has one of its own, and OpenShift gives each namespace its own.
    """
    found: Object = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    of_pod = pod.get("securityContext")
    if isinstance(of_pod, dict) and of_pod.get("runAsUser") == 0:
        return found  # every container is root's, and the kubelet would not start this one
    return found | {"runAsNonRoot": True}


def _add_python_path(env: list[Object], what: str) -> None:
    for variable in env:
        if variable.get("name") != "PYTHONPATH":
            continue
        if "valueFrom" in variable:
            raise WiringError(
                f"{what}: PYTHONPATH comes from a reference: add {PLUGIN_DIR} to it there and "
                "use --plugin-installed"
            )
        parts = [part for part in str(variable.get("value") or "").split(":") if part]
        if PLUGIN_DIR not in parts:
            variable["value"] = ":".join([*parts, PLUGIN_DIR])
        return
    env.append({"name": "PYTHONPATH", "value": PLUGIN_DIR})


def _upsert(items: list[Object], key: str, item: Object) -> None:
    """Put the item in place of the one with the same key, or at the end."""
    for index, present in enumerate(items):
        if present.get(key) == item[key]:
            items[index] = present if _covers(present, item) else item
            return
    items.append(item)


def _covers(present: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; what the API server added beside it does not matter."""
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(
            key in present and _covers(present[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(_covers(have, want) for have, want in zip(present, wanted, strict=True))
        )
    return bool(present == wanted)


def list_in(parent: Object, key: str) -> list[Object]:
    """The list of objects at `key`, made if it is absent or null. Raises WiringError."""
    if parent.get(key) is None:
        parent[key] = []
    found = parent[key]
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise WiringError(f"{key} must be a list of objects, not {found!r:.60}")
    return found


def _head(chunk: str) -> str:
    """The document's separator and the comments that stand before its content."""
    head = ""
    for line in chunk.splitlines(keepends=True):
        if line.startswith("---"):
            # Content may stand behind the separator: it is written anew.
            behind = line[3:].strip()
            head += line if not behind or behind.startswith("#") else "---\n"
        elif not line.strip() or line.startswith("#"):
            head += line
        else:
            break
    return head


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks."""


# What kubectl's YAML takes for a number or a truth value although this library does not: 1e3, 08,
# 0o17, 1234e56 (the beginning of a commit's hash), y.
_TAKEN_FOR_ANOTHER = re.compile(
    r"[-+.]?[0-9][0-9_.]*(e[-+]?[0-9]+)?|0[box][0-9a-f_]+|[yn]", re.IGNORECASE
)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else '"' if _TAKEN_FOR_ANOTHER.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_represent: Callable[..., None] = _Dumper.add_representer
_represent(str, _text)


def dump(document: Any) -> str:
    """YAML as people write it: order kept, no line folded."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
