"""The one-screen help text of a command (``--help``): its most used flags, by topic.

Made from the complete help text that tyro prints (``--help-all``), so flags, types and defaults are written once."""

import contextlib
import dataclasses
import io
import os
import re
import shutil
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Topics = Mapping[str, Sequence[str]]
"""Heading -> names of fields as flags are dotted (``train.steps``), in the order of the help."""
ALWAYS = {
    "--config FILE.yaml": "Read flags from a file. Those of the command line win.",
    "--help-all": "Show every flag (--no-NAME switches one off).",
}
WIDE = 100
"""Columns of the help text that tyro prints: few enough for one column of flags."""
_MAX_WIDTH, _MIN_WIDTH, _FLAG_COLUMNS = 100, 60, 28
_MAX_MEMBERS = 6
"""Flags that are shown of a field that is a dataclass."""
_MAX_TEXT_LINES = 3
"""Lines of a flag's text, of which only the first clause is shown."""


@dataclass(frozen=True)
class Entry:
    """A flag in a help text: its spelling with metavariable, its description, and its default as text ("" if none)."""

    given: str
    text: str
    default: str = ""


def entries(text: str) -> dict[str, Entry]:
    """Parse a help text of tyro, ``WIDE`` columns wide, with or without boxes: flag (``--train.steps``) -> entry."""
    parts: list[list[str]] = []
    for line in text.splitlines():
        if begin := re.match(r"(?:[│|] |  )(--?[a-z].*)", line):
            given, _, first = begin[1].rstrip("│| ").partition("  ")
            parts.append([given, first])
        elif parts and (continued := re.match(r"[│|]? {3,}(\S.*)", line)):
            parts[-1].append(continued[1].rstrip("│| "))
    result = {}
    for given, *lines in parts:
        words = " ".join(" ".join(lines).split())
        description, _, default = words.partition(" (default: ")
        result[re.split(r"[ ,]", given)[0]] = Entry(given.partition(", ")[0], description, default.removesuffix(")"))
    return result


def topics(*sections: str) -> Topics:
    """Value of ``HELP`` of a command's dataclass: the topics in these sections of ``help_topics.toml``, in order."""
    return {heading: names for section in sections for heading, names in _sections()[section].items()}


@cache
def _sections() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(Path(__file__).with_name("help_topics.toml").read_text(encoding="utf-8"))


def help_page(text: str, topics: Topics, more: Mapping[str, str], default: Any) -> str:
    """The one-screen help text, as wide as the terminal (60 to 100 columns). text: tyro's complete help, ``WIDE``
    columns wide; flags that it lacks are left out. topics: flags to show. more: flag -> description of flags that are
    not fields. default: the configuration whose fields the topics name."""
    known = entries(text)
    usage, about = text.strip().split("\n\n")[:2]
    width = max(_MIN_WIDTH, min(_MAX_WIDTH, shutil.get_terminal_size().columns))
    lines = [*textwrap.wrap(usage, width, subsequent_indent="    "), "", *textwrap.wrap(about, width), ""]
    for heading, names in topics.items():
        shown = [known[flag] for flag in _flags(names, default) if flag in known]
        if shown:
            lines += [f"{heading}:", *(line for entry in shown for line in _lines(entry, width))]
    lines += ["more:", *more_lines(more, width)]
    return "\n".join(lines)


def more_lines(more: Mapping[str, str], width: int = _MAX_WIDTH) -> Iterator[str]:
    """Yield help lines of ``more`` (flag -> description) and of every command's flags. width: columns of a line."""
    for given, text in {**more, **ALWAYS}.items():
        yield from _lines(Entry(given, text), width)


def _flags(names: Iterable[str], default: Any) -> Iterator[str]:
    for name in names:
        part = getattr(default, name, None)
        members = [field.name for field in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else [name]
        members = members[:_MAX_MEMBERS]
        yield from (f"--{member.replace('_', '-')}" for member in members)


def _lines(entry: Entry, width: int) -> list[str]:
    default = f" [{entry.default}]" if entry.default not in ("", "''", "None", "False") else ""
    clause = re.split(r"[.;] (?=[\w-])", entry.text)[0].rstrip(".")
    room = width - _FLAG_COLUMNS
    wrapped = textwrap.wrap(clause + default, room, max_lines=_MAX_TEXT_LINES, placeholder=" ...")
    given = re.sub(r"\[(.+?) \[\1 \.\.\.\]\]", r"\1 ...", entry.given)
    head, column = f"  {given}", " " * _FLAG_COLUMNS
    first, *rest = wrapped or [""]
    start = [f"{head:<{_FLAG_COLUMNS}}{first}"] if len(head) < _FLAG_COLUMNS else [head, f"{column}{first}"]
    return [*start, *(f"{column}{line}" for line in rest)]


@contextlib.contextmanager
def plain_terminal() -> Iterator[io.StringIO]:
    """Context manager that sends standard output to the buffer it yields, ``WIDE`` columns wide and without colours.
    Changes this process's environment (COLUMNS, NO_COLOR, TERM) until its end."""
    wide = {"COLUMNS": str(WIDE), "NO_COLOR": "1", "TERM": "dumb"}
    before = {name: os.environ.get(name) for name in wide}
    os.environ.update(wide)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            yield text
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
