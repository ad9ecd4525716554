"""What the definition in force keeps of a status, and what an operator says that it lacks."""

from __future__ import annotations

from typing import Any

from evictune.act.definition import specimen
from evictune.api.status_schema import status_schema
from evictune.kube import MERGE_PATCH, policies_path

from tests.support.operator_scene import Scene


def every_field() -> dict[str, Any]:
    """A status with every field of this version."""
    found: dict[str, Any] = specimen(status_schema())
    return found


def kept_fields(scene: Scene, policy: str = "chat") -> dict[str, Any]:
    """What the definition in force keeps of a status with every field."""
    answer = scene.api.request(
        "PATCH",
        f"{policies_path(scene.namespace)}/{policy}/status",
        body={"status": every_field()},
        content_type=MERGE_PATCH,
        query={"dryRun": "All"},
    )
    found: dict[str, Any] = answer["status"]
    return found


def told(scene: Scene) -> str:
    """What the Event says of the definition; empty until there is one."""
    found = [each for each in scene.events() if each["reason"] == "DefinitionOutdated"]
    assert len(found) <= 1
    return str(found[0]["message"]) if found else ""


def is_dry(event: dict[str, Any]) -> bool:
    """Whether a request of the audit log was a dry run."""
    return "dryRun=All" in event["requestURI"]
