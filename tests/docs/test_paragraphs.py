"""Guides are read on a screen: no paragraph, and no item of a list, is longer than ``MAX_CHARACTERS``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_commands_of_pages import PAGES
from tests.source_tree import ROOT

MAX_CHARACTERS = 600
"""About five lines of a page. Measured on the text as it is written, markup included."""
ITEM = re.compile(r"\s*([-*]|\d+\.) ")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text in one line) of every paragraph and item of a list of a page in Markdown. Blocks
    of code, tables, headings and pictures are none."""
    parts: list[str] = []
    first, is_code = 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        is_fence = line.lstrip().startswith("```")
        if is_code and not is_fence:
            continue
        is_code ^= is_fence
        is_prose = bool(line.strip()) and not is_fence and not line.startswith(("#", "|", "!["))
        if parts and (not is_prose or ITEM.match(line)):
            yield first, " ".join(parts)
            parts = []
        if is_prose:
            first = first if parts else number
            parts.append(line.strip())


def test_paragraphs_and_items_are_told_from_code_and_tables() -> None:
    text = "# A\none\ntwo\n- three\n  four\n- five\n\n| a |\n|---|\n\n```bash\n\nmake\n```\nsix\n![a](b)"
    assert list(paragraphs(text)) == [(2, "one two"), (4, "- three four"), (6, "- five"), (15, "six")]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/house.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_of_a_guide_is_long(page: Path) -> None:
    lengths = {line: len(text) for line, text in paragraphs(page.read_text(encoding="utf-8"))}
    assert lengths
    too_long = [f"{page.name}:{line}: {n} characters" for line, n in lengths.items() if n > MAX_CHARACTERS]
    assert not too_long, f"split or shorten: at most {MAX_CHARACTERS}"
