"""YAML in which a key stands once: of two with the same name, one would be lost without a word."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, ScalarNode

_MERGE = "tag:yaml.org,2002:merge"


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a mapping with the same key twice, as kubectl does."""

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """As of `yaml.composer.Composer`: here, since later on merged keys look like given ones."""
        node: MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value!r} is given twice: keep one of the two"
                raise ComposerError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return node


def problem_of(error: Exception, lines_before: int = 0) -> tuple[str, str]:
    """(where, what) of text that is no YAML, without the text itself: it may hold a secret.

    lines_before: so many lines of the whole text stand before the part that was read.
    """
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or problem is None:
        return "", " ".join(str(error).split())
    return f"line {lines_before + mark.line + 1}, column {mark.column + 1}", problem
