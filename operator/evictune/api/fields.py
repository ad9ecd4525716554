"""How a field of the API is described: once, beside the typed field it belongs to.

Each helper returns a dataclass field whose metadata carries the JSON name, the description, the
default and the limits. The CRD, the parser and the reference page are all made from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, StrEnum
from functools import cache
from typing import Any

from evictune.api.quantity import parse_decimal, parse_duration

_METADATA_KEY = "evictune.api"
# By class: every tick of every policy parses by it.
_described: dict[type[Any], tuple[tuple[str, FieldInfo], ...]] = {}


class FieldType(Enum):
    """How a field looks in JSON. Decimals and durations are strings: the API has no floats."""

    TEXT = "string"
    DECIMAL = "decimal"
    DURATION = "duration"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    OBJECT = "object"
    LIST = "array"


@dataclass(frozen=True)
class FieldInfo:
    """What the API says of one field. Defaults and limits are as the API writes them.

    minimum and maximum are included unless `exclusive`. `type`: the enum or the dataclass inside.
    """

    field_type: FieldType
    description: str
    name: str = ""
    default: Any = None
    required: bool = False
    minimum: str | int | None = None
    maximum: str | int | None = None
    exclusive: bool = False
    pattern: str = ""
    max_length: int = 0
    max_items: int = 0
    choices: tuple[str, ...] = ()
    type: type[Any] | None = None


@dataclass(frozen=True)
class Rule:
    """What one field cannot say: the same rule in CEL, for the API server, and in Python.

    `holds` is None for a rule about a change, which only the API server can see. `cel` is empty
    for what CEL cannot say: then the operator tells it, by the condition Ready.
    """

    cel: str
    message: str
    field_path: str
    holds: Callable[[Any], bool] | None


def text(
    description: str,
    *,
    default: str | None = None,
    required: bool = False,
    pattern: str = "",
    max_length: int = 0,
    choices: tuple[str, ...] = (),
    name: str = "",
) -> Any:
    """A string."""
    info = FieldInfo(
        FieldType.TEXT,
        description,
        name,
        default,
        required,
        pattern=pattern,
        max_length=max_length,
        choices=choices,
    )
    return _field(info, default)


def choice(description: str, *, default: StrEnum) -> Any:
    """One word of an enum."""
    words = tuple(member.value for member in type(default))
    info = FieldInfo(
        FieldType.TEXT, description, default=default.value, choices=words, type=type(default)
    )
    return _field(info, default)


def decimal(
    description: str,
    *,
    minimum: str,
    maximum: str | None = None,
    exclusive: bool = False,
    default: str | None = None,
    required: bool = False,
    name: str = "",
) -> Any:
    """A decimal number, written as a string; Decimal in Python."""
    info = FieldInfo(
        FieldType.DECIMAL, description, name, default, required, minimum, maximum, exclusive
    )
    return _field(info, None if default is None else parse_decimal("default", default))


def duration(
    description: str,
    *,
    minimum: str,
    maximum: str,
    default: str | None = None,
    required: bool = False,
    name: str = "",
) -> Any:
    """A duration, written as a string such as "800ms"; float seconds in Python."""
    info = FieldInfo(FieldType.DURATION, description, name, default, required, minimum, maximum)
    return _field(info, None if default is None else parse_duration("default", default))


def integer(
    description: str,
    *,
    minimum: int,
    maximum: int,
    default: int | None = None,
    required: bool = False,
    name: str = "",
) -> Any:
    """A whole number; None where it is neither given nor has a default."""
    info = FieldInfo(FieldType.INTEGER, description, name, default, required, minimum, maximum)
    return _field(info, default)


def boolean(description: str, *, default: bool) -> Any:
    """True or false."""
    return _field(FieldInfo(FieldType.BOOLEAN, description, default=default), default)


def nested(description: str, cls: type[Any], *, required: bool = False, name: str = "") -> Any:
    """An object that must be given."""
    return _field(FieldInfo(FieldType.OBJECT, description, name, required=required, type=cls), None)


def nested_default(description: str, cls: type[Any]) -> Any:
    """An object that, left out, is there with its own fields' defaults."""
    info = FieldInfo(FieldType.OBJECT, description, default={}, type=cls)
    return dataclasses.field(default_factory=cls, metadata={_METADATA_KEY: info})


def listed(description: str, cls: type[Any], *, max_items: int) -> Any:
    """A list of objects; left out, it is empty. A tuple in Python."""
    info = FieldInfo(FieldType.LIST, description, max_items=max_items, type=cls)
    return dataclasses.field(default=(), metadata={_METADATA_KEY: info})


def described(cls: type[Any]) -> tuple[tuple[str, FieldInfo], ...]:
    """(attribute, its info with the JSON name filled in) of every described field of a class."""
    if cls not in _described:
        _described[cls] = _described_fields(cls)
    return _described[cls]


def _described_fields(cls: type[Any]) -> tuple[tuple[str, FieldInfo], ...]:
    known = ((each.name, each.metadata.get(_METADATA_KEY)) for each in dataclasses.fields(cls))
    return tuple(
        (attribute, dataclasses.replace(info, name=info.name or _camel_case(attribute)))
        for attribute, info in known
        if info is not None
    )


def rules(cls: type[Any]) -> tuple[Rule, ...]:
    """The rules across a class's fields."""
    found: tuple[Rule, ...] = getattr(cls, "RULES", ())
    return found


def limit(info: FieldInfo, bound: str | int | None) -> Decimal | float | int | None:
    """A bound of a field in Python's terms: Decimal, seconds or int."""
    if bound is None or isinstance(bound, int):
        return bound
    return _limit(info.field_type, info.name, bound)


@cache
def _limit(field_type: FieldType, name: str, bound: str) -> Decimal | float:
    return (parse_duration if field_type is FieldType.DURATION else parse_decimal)(name, bound)


def _field(info: FieldInfo, default: Any) -> Any:
    metadata = {_METADATA_KEY: info}
    if info.required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _camel_case(attribute: str) -> str:
    head, *tail = attribute.split("_")
    return head + "".join(word.capitalize() for word in tail)
