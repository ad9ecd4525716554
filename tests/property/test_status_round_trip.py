"""What is remembered survives the way through .status, and fits the schema."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from evictune.api.crd import crd
from evictune.api.decision import (
    Applied,
    Baseline,
    Condition,
    ConditionType,
    Decision,
    DecisionRecord,
    Memory,
    Pending,
    Phase,
    Quarantined,
    Recommendation,
    RegimeState,
    Scale,
    Shortage,
    Trial,
    Turn,
)
from evictune.api.knobs import STOCK_LRU, KnobValues
from evictune.api.observation import Idle, Interval, Unknown, Value
from evictune.api.reasons import Reason
from evictune.api.status import memory_from_status, status_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.situations import NOW, make_policy, observe

times = st.integers(0, 4_000_000_000).map(float)
words = st.text(max_size=20)
reason = st.sampled_from(list(Reason))
# What is stored is exact to a microsecond, or a millionth.
measured = st.none() | st.integers(0, 10**10).map(lambda number: number / 10**6)
orders = st.just(STOCK_LRU) | st.builds(KnobValues, st.integers(1, 10**7), st.integers(0, 10**7))
fractions = st.none() | st.integers(50, 970).map(lambda number: Decimal(number) / 1000)
values = st.builds(KnobValues.at, orders, fractions)
turns = st.lists(
    st.builds(
        Turn,
        words,
        words,
        st.integers(1, 99),
        st.integers(0, 99),
        times,
        st.none() | times,
        st.none() | times,
    ),
    max_size=3,
).map(tuple)
baseline = st.builds(
    Baseline,
    measured,
    measured | st.just(float("inf")),
    measured,
    measured,
    measured,
    measured,
    st.none() | st.integers(0, 10**6),
    words,
    measured,
    measured,
)
memory = st.builds(
    Memory,
    st.none() | st.builds(RegimeState, reason, times, words),
    st.none()
    | st.builds(
        Pending,
        words,
        st.integers(1, 10**9),
        st.sampled_from(list(Phase)),
        values,
        values,
        baseline,
        reason,
        times,
        st.none() | times,
        words,
        turns,
    ),
    st.none() | st.builds(Applied, st.integers(1, 10**9), words, values),
    st.none() | st.builds(Recommendation, values, values, words),
    st.lists(
        st.builds(
            DecisionRecord, words, times, reason, words, st.none() | values, st.none() | values
        ),
        max_size=10,
    ).map(tuple),
    st.lists(
        st.builds(
            Quarantined,
            values,
            words,
            times,
            reason,
            measured,
            st.booleans(),
            st.integers(1, 10**6),
        ),
        max_size=32,
    ).map(tuple),
    st.none() | times,
    st.builds(Scale, st.integers(0, 10**6), st.none() | times),
    st.none() | st.builds(Shortage, times, times),
    st.none() | st.builds(Trial, words, values, times, fractions, turns),
    st.lists(times, max_size=24).map(tuple),
)
conditions = st.lists(
    st.builds(
        Condition, st.sampled_from(list(ConditionType)), st.none() | st.booleans(), reason, words
    ),
    max_size=5,
).map(tuple)
finite = st.floats(0, 1e9)
reading = st.builds(Value, finite) | st.just(Idle()) | st.just(Unknown(Reason.NO_SERIES, "none"))
quantile = (
    st.builds(Interval, finite, finite | st.just(float("inf")), finite, finite)
    | st.just(Idle())
    | st.just(Unknown(Reason.NO_SERIES, "none"))
)
SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]


@settings(max_examples=50)
@given(memory)
def test_memory_survives(before: Memory) -> None:
    status = status_of(make_policy(), Decision(before, ()), observe(), NOW)
    assert memory_from_status(status) == before


@settings(max_examples=50)
@given(memory, conditions, reading, quantile)
def test_status_fits_the_schema(
    before: Memory, told: tuple[Condition, ...], one: Any, ttft: Any
) -> None:
    observation = observe(ttft=ttft, kv_usage=one, queue_time=one, evicted_protected=one)
    status = status_of(make_policy(), Decision(before, told), observation, NOW)
    assert list(_misfits(status, SCHEMA, "status")) == []


def _misfits(value: Any, schema: dict[str, Any], path: str) -> Any:
    """What a strict API server would refuse or prune."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, kinds[schema["type"]]):
        yield f"{path}: {value!r} is no {schema['type']}"
    elif isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                yield f"{path}.{name} is missing"
        for name, item in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name} is not in the schema"
            else:
                yield from _misfits(item, schema["properties"][name], f"{path}.{name}")
    elif isinstance(value, list):
        if len(value) > schema["maxItems"]:
            yield f"{path} has {len(value)} items"
        for index, item in enumerate(value):
            yield from _misfits(item, schema["items"], f"{path}[{index}]")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not in {schema['enum']}"
