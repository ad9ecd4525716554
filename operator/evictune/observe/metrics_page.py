"""docs/metrics.md, written from the table of names: `python -m evictune.observe.metrics_page`."""

from __future__ import annotations

from collections.abc import Iterator

from evictune.observe.dialects import MEANINGS, NAMES, PLUGIN_PORT, PLUGIN_SERIES


def _page() -> Iterator[str]:
    """docs/metrics.md, line by line."""
    yield "# Metrics that evictune reads"
    yield ""
    yield "Generated from `evictune/observe/dialects.py`. Where an engine exposes several names of"
    yield "one measure, the first one listed is read; names are never summed."
    yield ""
    yield "| measure | engine | name | versions | read as | unit | pooled |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in NAMES:
        meaning = MEANINGS[name.measure]
        labels = "".join(f'{{{key}="{value}"}}' for key, value in name.labels.items())
        yield (
            f"| {name.measure} | {name.engine} | `{name.base}{labels}` | {name.versions} "
            f"| {meaning.kind.value} | {meaning.unit} | {meaning.pooling} |"
        )
    yield ""
    yield f"Read from the plugin's own page, port {PLUGIN_PORT}, whatever the metrics source is:"
    yield ""
    yield "| name | what it says |"
    yield "| --- | --- |"
    for series, meaning_text in PLUGIN_SERIES.items():
        yield f"| `{series}` | {meaning_text} |"


def metrics_page() -> str:
    """The text of docs/metrics.md."""
    return "\n".join(_page()) + "\n"


if __name__ == "__main__":
    print(metrics_page(), end="")
