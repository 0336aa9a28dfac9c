"""Pieces of a page: the shell, tables, tiles, numbers with their intervals. Knows nothing of episodes or runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lemur_ray.report.escape import inline
from lemur_ray.report.pages.scripts import SCRIPT
from lemur_ray.report.pages.style import CSS
from lemur_ray.report.tables import Rate

MANY = "many"
"""A table of many columns."""
DASH = "\u2013"
"""Stands where there is no value."""


class Safe(str):
    """Text that is HTML already; every other string is escaped when it is put into a table."""


def page(title: str, body: str, *, live: bool = False, listed: str = "") -> str:
    """A whole document that stands alone: style and script inside, nothing fetched.

    ``live``: it loads itself anew. ``listed``: the page that knows where episodes stand which are not on this one.
    """
    return page_start(title, live=live, listed=listed) + body + page_end()


def page_start(
    title: str, remark: str = "", *, script: str = SCRIPT, live: bool = False, listed: str = "", wide: bool = False
) -> str:
    """What a document begins with, for pages that are written piece by piece."""
    about = (" data-live" if live else "") + (f' data-list="{inline(listed)}"' if listed else "")
    return (
        f'<!doctype html>\n{remark}<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "img-src 'self' file:\">"
        f"<title>{inline(title)}</title><style>{CSS}</style><script>{script}</script></head>"
        f"<body{about}><main{' class=wide' if wide else ''}>"
    )


def page_end() -> str:
    """What closes it."""
    return "</main></body></html>\n"


def cell(value: object) -> str:
    """The HTML of a table cell: numbers grouped, None as a dash, strings escaped; of several values each."""
    if isinstance(value, Safe):
        return value
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{inline(name)} {cell(one)}" for name, one in value.items()) or DASH
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or DASH
    return inline(value)


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], strong: frozenset[int] = frozenset(), kind: str = ""
) -> str:
    """A table that scrolls sideways on a narrow screen. Columns after the first that hold a number align right.

    ``kind``: a class of the style sheet; ``many`` has narrow columns, and the first stays where it is.
    """
    rows = list(rows)
    numeric = [i > 0 and any(isinstance(row[i], int | float | Safe) for row in rows) for i in range(len(header))]
    head = "".join(f"<th{_n(numeric[i])}>{inline(name)}</th>" for i, name in enumerate(header))
    body = "".join(
        ('<tr class="strong">' if r in strong else "<tr>")
        + "".join(f"<td{_n(numeric[i])}>{cell(value)}</td>" for i, value in enumerate(row))
        + "</tr>"
        for r, row in enumerate(rows)
    )
    shape = f"scroll {kind}".rstrip()
    return f'<div class="{shape}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _n(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def tiles(items: Iterable[tuple[str, str]]) -> str:
    """Large numbers with a line of explanation each: (number, explanation)."""
    inner = "".join(f'<div class="tile"><b>{inline(n)}</b><span>{inline(said)}</span></div>' for n, said in items)
    return f'<div class="tiles">{inner}</div>'


def percent(share: float | None) -> str:
    """0.642 -> "64.2 %", None -> a dash."""
    return DASH if share is None else f"{share * 100:.1f} %"


def rate_text(rate: Rate) -> str:
    """Count, n, share and interval in one line: "77/120 = 64.2 % [55.3, 72.2]"."""
    if not rate.n:
        return "no episode (n = 0)"
    bounds = rate.interval
    return f"{rate.count}/{rate.n} = {percent(rate.value)} [{bounds.low * 100:.1f}, {bounds.high * 100:.1f}]"


def warning(lines: Sequence[str]) -> str:
    """A box that says plainly what is missing or not shown; empty for no lines."""
    if not lines:
        return ""
    return f'<div class="warn"><ul>{"".join(f"<li>{inline(line)}</li>" for line in lines)}</ul></div>'
