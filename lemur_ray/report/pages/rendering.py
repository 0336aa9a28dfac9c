"""The Jinja environment of the pages: every template is compiled once per process.

A template file lays out, Python computes the values. Every value that is not ``Markup`` is escaped and made printable
(``escape.py``), so text of models and environments is safe wherever a template puts it."""

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from lemur_ray.host.page_style import page_style
from lemur_ray.report.escape import block, inline, slug

_FOLDER = Path(__file__).parent / "templates"
_BREAK_AT_TAG = re.compile(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])")
_BREAK_IN_TEXT = re.compile(r"\s*\n\s*")


class _LineBreaks(Extension):
    """Removes line breaks and indentation beside a tag, as JSX does; a break inside text becomes one space."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _BREAK_IN_TEXT.sub(" ", _BREAK_AT_TAG.sub("", source.strip()))


def _escaped(value: object) -> object:
    return value if isinstance(value, Markup | int) else Markup(inline(value))


@cache
def environment() -> Environment:
    """The Jinja environment with all templates of this package; an undefined name in one raises an error."""
    new = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        finalize=_escaped,
        extensions=[_LineBreaks],
    )
    new.globals |= {"asset": asset, "shared_style": Markup(page_style())}
    new.filters |= {"block": lambda *text: Markup(block(*text)), "slug": slug, "thousands": "{:,}".format}
    return new


def render(name: str, **values: object) -> Markup:
    """Render the template ``NAME.html.j2`` to HTML. Raises Jinja's errors, also for an undefined name."""
    return Markup(environment().get_template(f"{name}.html.j2").render(values))


def write_stream(path: Path, name: str, **values: object) -> None:
    """Render ``NAME.html.j2`` into a file in pieces; values may be iterators over more than fits in memory. The file
    appears under its name only once it is complete."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(environment().get_template(f"{name}.html.j2").generate(values))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@cache
def macro(template: str, name: str) -> Callable[..., Markup]:
    """The macro ``name`` of the template ``TEMPLATE.html.j2`` as a function that returns HTML."""
    return getattr(environment().get_template(f"{template}.html.j2").module, name)


@cache
def asset(name: str) -> Markup:
    """Text of a style sheet or script of this package, for use inside a page."""
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))
