"""Lines of a page that are of interest, parsed as if the whole page had been."""

from __future__ import annotations

from pathlib import Path

import pytest
from evictune.observe.dialects import PLUGIN_SERIES, Engine
from evictune.observe.engine_page import sample_names
from evictune.observe.exposition import ExpositionError, Sample, parse
from prometheus_client.parser import text_string_to_metric_families

PAGES = sorted((Path(__file__).parents[1] / "data" / "exposition").rglob("*.txt"))
NAMES = sample_names(Engine.VLLM) | set(PLUGIN_SERIES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_samples_are_those_of_the_whole_page(page: Path) -> None:
    text = page.read_text()
    whole = [
        Sample(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in NAMES
    ]
    assert whole
    # Twice: the second time most lines are remembered.
    assert parse(text, NAMES) == whole
    assert parse(text, NAMES) == whole


def test_what_begins_like_a_name_is_another() -> None:
    assert parse("vllm:x_total 1\nvllm:x 2\nvllm:x_created 3\n", {"vllm:x"}) == [
        Sample("vllm:x", {}, 2.0)
    ]


def test_a_page_without_any_of_them_is_empty() -> None:
    assert parse("# TYPE up gauge\nup 1\n", NAMES) == []


@pytest.mark.parametrize(
    "text",
    [
        "<html>\n<body>login</body>\n</html>\n",
        'vllm:x{engine="0',
        "vllm:x one\n",
        "vllm:x 1\nother{engine=",
        "vllm:x 1\nother 12",
    ],
)
def test_what_is_no_page_is_refused_with_its_beginning(text: str) -> None:
    with pytest.raises(ExpositionError, match="begins with") as refused:
        parse(text, {"vllm:x"})
    assert text.split()[0] in str(refused.value)


def test_a_line_of_any_length_is_read() -> None:
    line = f'vllm:x{{model_name="{"m" * 10_000}"}} 1\n'
    assert [len(sample.labels["model_name"]) for sample in parse(line, {"vllm:x"})] == [10_000]
