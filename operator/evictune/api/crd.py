"""The CustomResourceDefinition, generated from the described dataclasses.

Conventions: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
Validation rules (CEL): https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from typing import Any

from evictune.api.fields import FieldInfo, FieldType, Rule, described, rules
from evictune.api.parse import limits_text
from evictune.api.policy import (
    GROUP,
    KIND,
    PLURAL,
    SHORT_NAME,
    VERSION,
    EvictionPolicySpec,
)
from evictune.api.quantity import DECIMAL_PATTERN, DURATION_PATTERN
from evictune.api.status_schema import status_schema

# Bounds what the API server reckons a rule on a decimal or a duration to cost.
_QUANTITY_LENGTH = 32


def crd() -> dict[str, Any]:
    """The definition as `kubectl apply` takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            # An uninstalled chart must not take every policy with it.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": _printer_columns(),
        "schema": {"openAPIV3Schema": _root_schema()},
    }


def _root_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "EvictionPolicy states the time to first token that a vLLM workload shall "
        "keep, and lets the operator tune KV-cache eviction to keep it.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            "metadata": {"type": "object"},
            "spec": {
                "description": "What is wanted, and how far the operator may go.",
                **object_schema(EvictionPolicySpec),
            },
            "status": status_schema(),
        },
    }


def _printer_columns() -> list[dict[str, Any]]:
    """Columns of `kubectl get evp`: with -A and long names they fit 120 characters.

    Priority 1: with `-o wide` only. TTFT is at the SLO's quantile.
    """
    met, ready = (f'.status.conditions[?(@.type=="{kind}")]' for kind in ("SLOMet", "Ready"))
    columns = (
        ("Mode", "string", ".spec.mode", 0),
        ("TTFT", "string", ".status.observed.ttft.estimate", 0),
        ("SLO met", "string", f"{met}.status", 0),
        ("State", "string", ".status.regime.name", 0),
        ("xi", "integer", ".status.applied.values.xiTokens", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
        ("Target", "string", ".spec.targetRef.name", 1),
        ("Suspended", "boolean", ".spec.suspend", 1),
        ("Ready", "string", f"{ready}.reason", 1),
    )
    return [
        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
        for name, kind, path, priority in columns
    ]


def object_schema(cls: type[Any]) -> dict[str, Any]:
    """The schema of a described dataclass."""
    fields = [info for _, info in described(cls)]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {info.name: _field_schema(info) for info in fields},
    }
    required = [info.name for info in fields if info.required]
    if required:
        schema["required"] = required
    in_cel = [rule for rule in rules(cls) if rule.cel]
    if in_cel:
        schema["x-kubernetes-validations"] = [_rule_schema(rule) for rule in in_cel]
    return schema


def _rule_schema(rule: Rule) -> dict[str, Any]:
    schema = {"rule": rule.cel, "message": rule.message}
    if rule.field_path:
        schema["fieldPath"] = rule.field_path
    return schema


def _field_schema(info: FieldInfo) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": info.description}
    if info.field_type is FieldType.OBJECT and info.type is not None:
        schema |= object_schema(info.type)
    elif info.field_type is FieldType.LIST and info.type is not None:
        schema |= _list_schema(info.type, info.max_items)
    elif info.field_type in (FieldType.DECIMAL, FieldType.DURATION):
        schema |= _quantity_schema(info)
    else:
        schema |= _plain_schema(info)
    if info.default is not None:
        schema["default"] = _default(info)
    return schema


def _list_schema(cls: type[Any], max_items: int) -> dict[str, Any]:
    """A list that one writer owns as a whole."""
    items = {"description": str(cls.__doc__).partition("\n")[0], **object_schema(cls)}
    return {
        "type": "array",
        "maxItems": max_items,
        "x-kubernetes-list-type": "atomic",
        "items": items,
    }


def _default(info: FieldInfo) -> Any:
    """A default; that of an object is spelled out, since rules look at it as it stands."""
    if info.type is None or info.field_type is not FieldType.OBJECT:
        return info.default
    inner = (each for _, each in described(info.type))
    return {each.name: _default(each) for each in inner if each.default is not None}


def _plain_schema(info: FieldInfo) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": info.field_type.value}
    if info.choices:
        schema["enum"] = list(info.choices)
    if info.pattern:
        schema["pattern"] = info.pattern
    if info.max_length:
        schema["maxLength"] = info.max_length
    if info.field_type is FieldType.INTEGER:
        schema |= {"minimum": info.minimum, "maximum": info.maximum}
    return schema


def _quantity_schema(info: FieldInfo) -> dict[str, Any]:
    """A decimal or a duration: a string whose limits CEL checks."""
    is_duration = info.field_type is FieldType.DURATION
    number = "duration" if is_duration else "double"
    less = "<" if info.exclusive else "<="

    def value(text: object) -> str:
        return f"{number}('{text}')" if is_duration else str(float(str(text)))

    parts = [f"{value(info.minimum)} {less} {number}(self)"]
    if info.maximum is not None:
        parts.append(f"{number}(self) {less} {value(info.maximum)}")
    return {
        "type": "string",
        "pattern": DURATION_PATTERN if is_duration else DECIMAL_PATTERN,
        "maxLength": _QUANTITY_LENGTH,
        "x-kubernetes-validations": [{"rule": " && ".join(parts), "message": limits_text(info)}],
    }
