"""A page in the Prometheus text format, as samples. Parsed by prometheus_client, not by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


class ExpositionError(ValueError):
    """What was served is not the Prometheus text format."""


@dataclass(frozen=True)
class Sample:
    """One line of a page. The value may be NaN or infinite: the format allows it."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str, names: Collection[str]) -> list[Sample]:
    """The samples whose name is among `names`, in the page's order. Raises ExpositionError."""
    try:
        return [
            Sample(sample.name, sample.labels, float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in names
        ]
    except (ValueError, IndexError, KeyError) as error:
        # The parser answers other formats, such as a proxy's HTML, with any of the three.
        start = " ".join(text[:60].split())
        raise ExpositionError(
            f"not the Prometheus text format: {error}; the page begins with {start!r}"
        ) from None
