"""Code blocks of a document's section, as a reader would carry them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.walkthrough import Step, steps

TEXT = """\
# Title

    not of the section

## First

Words, and a line of words
    that goes on: no block. A number at the beginning of a line makes no list, such as
9410. What follows is code.

    one --flag \\
      --other

- An item,

    with a paragraph: no code.

More words.

```yaml
kind: Policy
# no heading
```

```console
two
three
```

```json
{"is": "no step"}
```

### Deeper

    four

## Second

    five
"""


def test_blocks_of_a_section_in_their_order(tmp_path: Path) -> None:
    document = tmp_path / "guide.md"
    document.write_text(TEXT)
    assert steps(document, "First") == [
        Step("one --flag \\\n  --other"),
        Step("kind: Policy\n# no heading", manifest=True),
        Step("two\nthree"),
        Step("four"),
    ]
    assert steps(document, "Second") == [Step("five")]


def test_lines_are_commands() -> None:
    assert Step("one --flag \\\n  --other\ntwo").lines == ["one --flag    --other", "two"]


@pytest.mark.parametrize(("heading", "told"), [("Third", "no section"), ("Empty", "no code")])
def test_a_section_without_steps_is_an_error(tmp_path: Path, heading: str, told: str) -> None:
    document = tmp_path / "guide.md"
    document.write_text("# Empty\n\nWords.\n")
    with pytest.raises(LookupError, match=told):
        steps(document, heading)
