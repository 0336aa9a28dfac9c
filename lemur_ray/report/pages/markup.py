"""Parts that every page uses: the document itself, tables, tiles, numbers with intervals.

Knows nothing of episodes or runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lemur_ray.report.escape import inline
from lemur_ray.report.pages.rendering import macro, render
from lemur_ray.report.tables import Group, Rate

MANY = "many"
"""Kind of a table with many narrow columns; the first column stays in sight."""
DASH = "\u2013"
"""Text of an absent value."""
Safe = Markup
"""Text that is HTML already; every other value is escaped in a table."""


@dataclass(frozen=True)
class Page:
    """Parameters of the document around a page's body. ``episode_list``: address of the page that links to every
    episode. ``live``: the page reloads itself. ``remark``: HTML after the doctype. ``script``: name of a script of this
    package, which becomes part of the page."""

    title: str
    episode_list: str = ""
    live: bool = False
    wide: bool = False
    remark: Markup = Markup("")
    script: str = "page.js"


def page(title: str, body: str) -> str:
    """A whole HTML document with this title, around ``body``, which is HTML already."""
    return render("page", page=Page(title), body=Markup(body))


def cell(value: object) -> Markup:
    """HTML of a table cell: numbers with separators, None and empty collections as a dash, text escaped, elements of a
    collection joined by commas; ``Markup`` is unchanged."""
    match value:
        case Markup():
            return value
        case None:
            text = DASH
        case bool():
            text = "yes" if value else "no"
        case int():
            text = f"{value:,}"
        case float():
            text = f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
        case Mapping():
            text = ", ".join(f"{inline(name)} {cell(one)}" for name, one in value.items()) or DASH
        case list() | tuple():
            text = ", ".join(map(cell, value)) or DASH
        case _:
            text = inline(value)
    return Markup(text)


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], strong: frozenset[int] = frozenset(), kind: str = ""
) -> Markup:
    """A table as HTML that scrolls sideways on a narrow screen. Columns after the first that hold a number align right.
    ``header``: empty for a table of names and values, which aligns nothing. ``strong``: indices of emphasised rows,
    from 0. ``kind``: a class of the style sheet."""
    rows = list(rows)
    width = len(header) or max(map(len, rows), default=0)
    numeric = [
        bool(header) and i > 0 and any(isinstance(row[i], int | float | Markup) for row in rows) for i in range(width)
    ]
    lines = [(r in strong, list(zip(map(cell, row), numeric, strict=True))) for r, row in enumerate(rows)]
    return macro("parts", "table")(list(zip(header, numeric, strict=False)), lines, kind)


def numeric(text: str) -> Markup:
    """Escaped text of a table cell; its column aligns right, as those of numbers do."""
    return Markup(inline(text))


def noted(text: object, note: str) -> Markup:
    """HTML of a table cell with a smaller note below its text, if ``note`` is not empty."""
    return macro("parts", "noted")(text, note)


def tiles(items: Iterable[tuple[str, str]]) -> Markup:
    """Large numbers with one line of explanation each, as HTML. ``items``: (number, explanation)."""
    return macro("parts", "tiles")(list(items))


def percent(share: float | None) -> str:
    """Format a share, 0 to 1, in percent: 0.642 -> "64.2 %", None -> a dash."""
    return DASH if share is None else f"{share * 100:.1f} %"


def percent_interval(low: float, high: float) -> str:
    """Format the ends of an interval of shares in percent: (0.553, 0.722) -> "[55.3, 72.2]"."""
    return f"[{low * 100:.1f}, {high * 100:.1f}]"


def count_text(rate: Rate) -> str:
    """Count, n and share in one line: "77/120 = 64.2 %"; "no episode (n = 0)" for none."""
    return f"{rate.count}/{rate.n} = {percent(rate.value)}" if rate.n else "no episode (n = 0)"


def rate_text(rate: Rate) -> str:
    """Count, n, share and 95 % interval in one line: "77/120 = 64.2 % [55.3, 72.2]"; "no episode (n = 0)" for none."""
    bounds = rate.interval
    return f"{count_text(rate)} {percent_interval(bounds.low, bounds.high)}" if rate.n else count_text(rate)


def cut_text(group: Group) -> str:
    """Share of cut replies in one line: "3/120 = 2.5 %", with their kinds; a dash without replies of a model."""
    if not group.has_replies_of_a_model:
        return DASH
    kinds = ", ".join(f"{count} {kind}" for kind, count in group.cut["kinds"].items())
    text = f"{group.cut['count']}/{group.cut['n']} = {percent(group.cut['share'])}"
    return f"{text} ({kinds})" if kinds else text


def warning(lines: Sequence[str]) -> Markup:
    """HTML of a box with a list of warnings; empty without any."""
    return macro("parts", "warning")(lines)
