"""Code blocks of the documentation: what they hold is what the code takes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
import yaml
from evictune.api.parse import parse_policy
from evictune.api.policy import KIND
from evictune.api.sources import CONFIGURATION_OPTIONS, parse_configuration

from tests.support.docs_pages import PAGES, ROOT, Block, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]
LANGUAGES = {"", "json", "promql", "python", "sh", "text", "yaml"}
METADATA = {"name": "chat", "namespace": "serving"}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-8b"}
SLO = {"ttft": {"quantile": "0.99", "threshold": "800ms"}}
SCHEMA = json.loads((ROOT / "charts/evictune/values.schema.json").read_text())


def of(language: str) -> list[Block]:
    found = [block for block in BLOCKS if block.language == language]
    assert found
    return found


def test_languages_are_those_that_are_known() -> None:
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_is_what_its_reader_takes(block: Block) -> None:
    documents = list(yaml.safe_load_all(block.shown))
    assert documents
    for body in documents:
        _check(body)


def _check(body: dict[str, Any]) -> None:
    if body.get("kind") == KIND:
        parse_policy(body)
    elif {"kind", "args", "inhibit_rules", "components"} & set(body):  # of others
        return
    elif set(body) <= {"slo", "knobs", "behavior", "mode"}:
        spec = {"targetRef": TARGET, "slo": SLO, **body}
        parse_policy({"metadata": METADATA, "spec": spec})
    elif set(body) <= set(SCHEMA["properties"]):
        jsonschema.validate(body, SCHEMA | {"required": []})
        parse_configuration(yaml.safe_dump({"sources": body.get("sources", {})}))
    else:
        assert set(body) <= set(CONFIGURATION_OPTIONS)
        parse_configuration(yaml.safe_dump(body))


def test_python_of_the_buckets_has_bounds_where_the_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = [block for block in of("python") if block.page.name == "slo.md"]
    names: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), names)
    bounds = names["bounds"](0.8)
    assert bounds == sorted(set(bounds))
    assert bounds[0] < 0.1 < 10 < bounds[-1]
    fine = [bound for bound in bounds if 0.4 <= bound <= 1.6]
    assert all(after / before < 1.06 for before, after in pairwise(fine))
    assert len(bounds) <= 36
    assert "time_to_first_token" in capsys.readouterr().out


def test_what_is_not_taken_is_found() -> None:
    body = {"slo": {"ttft": {"quantile": "1.5", "threshold": "800ms"}}}
    with pytest.raises(ValueError, match=r"spec\.slo\.ttft\.quantile"):
        _check(body)
    with pytest.raises(ValueError, match="uri"):
        _check({"sources": {"default": {"prometheus": {"uri": "http://x"}}}, "namespaces": []})
