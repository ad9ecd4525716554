"""A container's environment, command and arguments, computed as kubelet does.

Sources: `makeEnvironmentVariables` in kubernetes/pkg/kubelet/kubelet_pods.go and
third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from localcluster.ledger import TAG
from localcluster.processnode.api import Json, ObjectCache
from localcluster.processnode.errors import ContainerConfigError

# What a program needs of the machine that a container would have from its image. The rest of the
# node's own environment stays out of the pods. The tag lets a teardown find every process.
_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", TAG)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value; $$ is a dollar, and an unknown reference stays as written."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return re.sub(r"\$(?:\$|\((?P<name>[^)]*)\))", replace, text)


def base_environment(server: str, pod_name: str) -> dict[str, str]:
    """What every container gets: the machine's PATH and the like, and the API server's address."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    address = urlsplit(server)
    return {
        **inherited,
        "HOSTNAME": pod_name,
        "KUBERNETES_SERVICE_HOST": address.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(address.port or 443),
    }


def pod_field(pod: Json, path: str) -> str:
    """The value of a fieldRef path of a pod; '' for a label or annotation that is not there."""
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    section, field = path.split(".")
    value = pod.get(section, {}).get(field, "")
    if field in ("labels", "annotations"):
        return "\n".join(f'{key}="{_quoted(text)}"' for key, text in sorted((value or {}).items()))
    if field in ("podIPs", "hostIPs"):
        return ",".join(address["ip"] for address in value or [])
    return str(value)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class EnvironmentResolver:
    """Computes the variables of a pod's containers from its spec and the objects it refers to."""

    pod: Json
    objects: ObjectCache

    def resolve(self, container: Json) -> dict[str, str]:
        """The variables of `envFrom` and `env`; raises ContainerConfigError, ApiError."""
        variables: dict[str, str] = {}
        for source in container.get("envFrom") or []:
            prefix = source.get("prefix", "")
            variables.update({prefix + key: text for key, text in self._all_keys(source)})
        for entry in container.get("env") or []:
            value = self._value(entry, variables)
            if value is not None:
                variables[entry["name"]] = value
        return variables

    def _value(self, entry: Json, variables: Mapping[str, str]) -> str | None:
        if entry.get("value"):
            return expand(entry["value"], variables)
        source = entry.get("valueFrom")
        if not source:
            return ""
        if field := source.get("fieldRef"):
            return pod_field(self.pod, field["fieldPath"])
        kind = "secret" if "secretKeyRef" in source else "configmap"
        reference = source.get("secretKeyRef") or source["configMapKeyRef"]
        data = self._data(kind, reference)
        if reference["key"] in data:
            return data[reference["key"]]
        if reference.get("optional"):
            return None
        raise ContainerConfigError(
            f"couldn't find key {reference['key']} in {kind} {self._namespace}/{reference['name']}"
        )

    def _all_keys(self, source: Json) -> Iterator[tuple[str, str]]:
        kind = "secret" if "secretRef" in source else "configmap"
        reference = source.get("secretRef") or source["configMapRef"]
        yield from self._data(kind, reference).items()

    def _data(self, kind: str, reference: Json) -> dict[str, str]:
        """The texts of a ConfigMap or Secret; empty if it is optional and missing."""
        name = reference.get("name", "")
        if kind == "secret":
            found = self.objects.secret(self._namespace, name)
            data = {
                key: base64.b64decode(text).decode(errors="surrogateescape")
                for key, text in ((found or {}).get("data") or {}).items()
            }
        else:
            found = self.objects.config_map(self._namespace, name)
            data = dict((found or {}).get("data") or {})
        if found is None and not reference.get("optional"):
            raise ContainerConfigError(f'{kind} "{name}" not found')
        return data

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])


@dataclass(frozen=True)
class MountMap:
    """Where the mounts of one container really are, since nothing can be mounted without root.

    `places` maps each mountPath to the directory or file that holds the volume.
    """

    places: Mapping[str, str]

    def rewrite(self, text: str) -> str:
        """Put the real place wherever a text names a mountPath or a path under it.

        A path counts where it begins: at the start, or after a character that cannot belong to a
        path (space, '=', ':', a quote ...). So `--config=/etc/app/x` is rewritten, and
        `/data/etc/app` is not.
        """
        if not self.places:
            return text
        longest_first = sorted(self.places, key=len, reverse=True)
        names = "|".join(re.escape(path.rstrip("/")) for path in longest_first)
        by_name = {path.rstrip("/"): place for path, place in self.places.items()}
        pattern = rf"(?<![\w./-])(?:{names})(?![\w.-])"
        return re.sub(pattern, lambda match: by_name[match[0]], text)
