"""An EvictionPolicy as the API server sends it, turned into typed objects.

The API server has applied the schema already; what comes from a file, or from a server whose
definition is older, has not been. So every default and limit is applied here again, from the same
descriptions (see fields) that the schema is made of. Unknown fields are left alone: they belong to
a newer definition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from evictune.api.fields import FieldInfo, FieldType, described, limit, rules
from evictune.api.policy import EvictionPolicy, EvictionPolicySpec
from evictune.api.quantity import FieldError, parse_decimal, parse_duration

T = TypeVar("T")


def parse_policy(body: Mapping[str, Any]) -> EvictionPolicy:
    """The policy of a resource body. Raises FieldError naming the field, the value, the remedy."""
    metadata = _mapping("metadata", body.get("metadata"))
    if not metadata.get("name"):
        raise FieldError("metadata.name", metadata.get("name"), "give the policy a name")
    return EvictionPolicy(
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
        resource_version=str(metadata.get("resourceVersion") or ""),
        creation_timestamp=str(metadata.get("creationTimestamp") or ""),
        spec=parse_object(EvictionPolicySpec, "spec", body.get("spec")),
        status=_mapping("status", body.get("status") or {}),
    )


def parse_object(cls: type[T], path: str, value: object) -> T:
    """An object of a described dataclass. Raises FieldError."""
    body = _mapping(path, value)
    arguments = {}
    for attribute, info in described(cls):
        given = body.get(info.name)
        arguments[attribute] = _field(f"{path}.{info.name}", info, given)
    parsed = cls(**arguments)
    for rule in rules(cls):
        if rule.holds is not None and not rule.holds(parsed):
            where = path + rule.field_path
            raise FieldError(where, _lookup(body, rule.field_path), rule.message)
    return parsed


def _field(path: str, info: FieldInfo, given: object) -> Any:
    if given is None:
        if info.required:
            raise FieldError(path, None, "it is required")
        if info.default is None:
            return () if info.field_type is FieldType.LIST else None
        given = info.default
    parsed = _PARSERS[info.field_type](path, info, given)
    _check_limits(path, info, given, parsed)
    return parsed


def _text(path: str, info: FieldInfo, given: object) -> Any:
    if not isinstance(given, str):
        raise FieldError(path, given, "write a string")
    if info.choices and given not in info.choices:
        raise FieldError(path, given, f"use one of {', '.join(info.choices)}")
    if info.pattern and not re.search(info.pattern, given):
        raise FieldError(path, given, f"it must match {info.pattern}")
    if info.max_length and len(given) > info.max_length:
        raise FieldError(path, given, f"use at most {info.max_length} characters")
    return info.type(given) if info.type else given


def _integer(path: str, info: FieldInfo, given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise FieldError(path, given, "write a whole number")
    return given


def _boolean(path: str, info: FieldInfo, given: object) -> bool:
    if not isinstance(given, bool):
        raise FieldError(path, given, "write true or false")
    return given


def _object(path: str, info: FieldInfo, given: object) -> Any:
    if info.type is None:
        raise TypeError(f"{path} is described as an object without a class")
    return parse_object(info.type, path, given)


def _list(path: str, info: FieldInfo, given: object) -> tuple[Any, ...]:
    if not isinstance(given, list | tuple):
        raise FieldError(path, given, "write a list")
    if len(given) > info.max_items:
        raise FieldError(path, f"{len(given)} items", f"use at most {info.max_items}")
    return tuple(_object(f"{path}[{index}]", info, each) for index, each in enumerate(given))


_PARSERS = {
    FieldType.TEXT: _text,
    FieldType.DECIMAL: lambda path, info, given: parse_decimal(path, given),
    FieldType.DURATION: lambda path, info, given: parse_duration(path, given),
    FieldType.INTEGER: _integer,
    FieldType.BOOLEAN: _boolean,
    FieldType.OBJECT: _object,
    FieldType.LIST: _list,
}


def _check_limits(path: str, info: FieldInfo, given: object, parsed: Any) -> None:
    low, high = limit(info, info.minimum), limit(info, info.maximum)
    below = low is not None and (parsed <= low if info.exclusive else parsed < low)
    above = high is not None and (parsed >= high if info.exclusive else parsed > high)
    if below or above:
        raise FieldError(path, given, limits_text(info))


def limits_text(info: FieldInfo) -> str:
    """The remedy for a value outside its limits, such as "use 1s to 1h"."""
    if info.maximum is None:
        return f"use at least {info.minimum}"
    if info.exclusive:
        return f"use a value strictly between {info.minimum} and {info.maximum}"
    return f"use {info.minimum} to {info.maximum}"


def _lookup(body: Mapping[str, Any], field_path: str) -> object:
    """The value at a path such as ".xiTokens.min"; the body itself for the empty path."""
    found: Any = body
    for name in filter(None, field_path.split(".")):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _mapping(path: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FieldError(path, value, "write an object with its fields")
    return value
