"""Which container of a pod is the engine, and where it serves /metrics.

A pod may hold routers and other helpers, in any order: the engine is known by what it runs, never
by its place in the list. Works on containers as plain dictionaries of the v1 API.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evictune.api.reasons import Reason
from evictune.observe.dialects import DEFAULT_PORTS, PLUGIN_PORT, Engine

Container = Mapping[str, Any]

_COMMANDS: Mapping[Engine, re.Pattern[str]] = {
    Engine.VLLM: re.compile(r"(^|[\s/;&|])vllm\s+serve\b|\bvllm\.entrypoints\."),
    Engine.SGLANG: re.compile(r"\bsglang\.launch_server\b|(^|[\s/;&|])sglang\s+serve\b"),
}
_IMAGES: Mapping[Engine, re.Pattern[str]] = {
    Engine.VLLM: re.compile(r"\bvllm\b[^/]*$"),
    Engine.SGLANG: re.compile(r"\bsglang\b[^/]*$"),
}
_SHELL_ENDS = ";&|"
_PORT_NAMES = ("metrics", "http")
_VARIABLE = re.compile(r"\$\(([^)]+)\)")


class ContainerError(ValueError):
    """No container, or more than one, can be the engine; `reason` says which."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class EngineContainer:
    """The engine's container and the port of its /metrics."""

    name: str
    engine: Engine
    port: int


def find_engine(containers: Sequence[Container], wanted: str | None) -> EngineContainer:
    """The engine among the containers; `wanted` is spec.containerName. Raises ContainerError."""
    container, engine = _chosen(containers, wanted)
    return EngineContainer(container["name"], engine, _port(container, engine))


def _chosen(containers: Sequence[Container], wanted: str | None) -> tuple[Container, Engine]:
    names = ", ".join(str(container["name"]) for container in containers)
    if wanted is not None:
        for container in containers:
            if container["name"] == wanted:
                return container, _by_command(container) or _by_image(container) or Engine.VLLM
        raise ContainerError(
            Reason.NO_ENGINE_CONTAINER, f"spec.containerName: {wanted!r} is not among {names}"
        )
    for recognised in (_by_command, _by_image):
        found = [(c, engine) for c in containers if (engine := recognised(c)) is not None]
        if len(found) == 1:
            return found[0]
        if found:
            many = ", ".join(str(container["name"]) for container, _ in found)
            raise ContainerError(
                Reason.AMBIGUOUS_CONTAINER, f"{many} all look like engines: set spec.containerName"
            )
    raise ContainerError(
        Reason.NO_ENGINE_CONTAINER, f"none of {names} runs vLLM or SGLang: set spec.containerName"
    )


def _by_command(container: Container) -> Engine | None:
    line = " ".join(_words(container))
    return next((engine for engine, pattern in _COMMANDS.items() if pattern.search(line)), None)


def _by_image(container: Container) -> Engine | None:
    """The engine that the image's repository is named after: registry/vllm-openai:v1@sha256:..."""
    repository = str(container.get("image", "")).partition("@")[0]
    head, slash, last = repository.rpartition("/")
    named = f"{head}{slash}{last.partition(':')[0]}"
    return next((engine for engine, pattern in _IMAGES.items() if pattern.search(named)), None)


def _words(container: Container) -> Iterator[str]:
    """command and args as words, $(NAME) replaced where the container's env says it literally."""
    literals = {e["name"]: e["value"] for e in container.get("env") or () if "value" in e}
    for part in (*(container.get("command") or ()), *(container.get("args") or ())):
        text = _VARIABLE.sub(lambda match: literals.get(match[1], match[0]), str(part))
        yield from _split(text)


# The pods of a workload have the same command lines, tick after tick.
@lru_cache(maxsize=4096)
def _split(text: str) -> tuple[str, ...]:
    """One item of a command line; it may be a whole one: ["sh", "-c", "vllm serve ..."]."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _port(container: Container, engine: Engine) -> int:
    """--port of the command line (the last one counts), else a named port, else the default."""
    words = list(_words(container))
    port = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--port" or word.startswith("--port="):
            value = following if word == "--port" else word.removeprefix("--port=")
            port = value.rstrip(_SHELL_ENDS)
    if port.isdecimal():
        return int(port)
    numbers = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
    # The plugin's page holds no series of the engine, whatever its port is called.
    named = [numbers[name] for name in _PORT_NAMES if numbers.get(name, PLUGIN_PORT) != PLUGIN_PORT]
    return int(named[0]) if named else DEFAULT_PORTS[engine]
