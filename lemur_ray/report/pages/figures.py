"""Figures as inline SVG: curves, intervals, shares. Colours are CSS classes, so a page can be light or dark.

Pure functions of numbers. Elements are written in code and not in a template because each one is a scale applied to a
number (docs/decisions/044-pages-by-templates.md). Labels are escaped here; nothing is measured in a browser."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lemur_ray.report.escape import inline
from lemur_ray.report.pages.rendering import macro

WIDTH = 900
"""Width of every drawing in SVG units, about pixels on a wide screen."""
_NAME_WIDTH, _VALUE_WIDTH = 7.6, 6.6
"""Width of a character in the bold name of a row, and of a digit, in SVG units."""
NUM_COLOURS = 8
"""Classes k0 .. k7 exist in the style sheet; further series repeat them dashed."""


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About ``about`` round values (1, 2 or 5 times a power of ten apart) in [low, high]; [low] if that is empty."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float, digits: int = 4) -> str:
    """Format a number for an axis, with ``digits`` significant digits: 1500 -> 1.5k, 2e6 -> 2M, 0.25 -> 0.25."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.{digits}g}{letter}"
    return f"{value:.{digits}g}"


def _spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near ``wanted``, at least ``gap`` apart and within [low, high] if the space suffices."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    floor = low
    for i in order:
        placed[i] = max(wanted[i], floor)
        floor = placed[i] + gap
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def _range(values: Sequence[float], margin: float) -> tuple[float, float]:
    """Ends of an axis: the values with a margin (a share of their span), never of length 0."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        pad = max(abs(high) * 0.1, 0.5)
        return low - pad, high + pad
    return low - (high - low) * margin, high + (high - low) * margin


def thin(points: Sequence[tuple[float, float]], most: int = 300) -> list[tuple[float, float]]:
    """At most ``most`` (x, y) points, each the mean of equally many neighbours; those not finite are left out."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    size = max(1, math.ceil(len(finite) / most))
    runs = [finite[i : i + size] for i in range(0, len(finite), size)]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def smooth(points: Sequence[tuple[float, float]], window: int) -> list[tuple[float, float]]:
    """Replace each y of (x, y) points by the mean over ``window`` points around it, fewer at the ends."""
    half = window // 2
    runs = (points[max(0, i - half) : i + half + 1] for i in range(len(points)))
    return [(x, sum(y for _, y in run) / len(run)) for (x, _), run in zip(points, runs, strict=True)]


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    y_label: str,
    window: int = 9,
    digits: int = 2,
    colours: Mapping[str, int | None] | None = None,
) -> Markup:
    """Curves as SVG, with their names and last values at the right end. ``series``: name -> (x, y) points. Each has a
    faint line of the values (thinned to 300 points) and a strong line of their running mean over ``window`` points; one
    without points is left out, and without any curve a sentence is returned. ``digits``: decimals of the last values.
    ``colours``: by name, as in ``Mark``; by default one after another."""
    drawn = {name: thin(points) for name, points in series.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return Markup('<p class="none">No points to draw.</p>')
    strong = {name: smooth(points, window) for name, points in drawn.items()}
    names = [f"{name} {points[-1][1]:.{digits}f}" for name, points in strong.items()]
    room = 22 + round(6.4 * max(map(len, names)))
    width, height, left, right, top, bottom = WIDTH, 340, 52, min(max(170, room), 450), 16, 42
    xs = [x for points in drawn.values() for x, _ in points]
    ys = [y for points in strong.values() for _, y in points]
    x0, x1 = _range(xs, 0.0)
    y0, y1 = _range(ys, 0.06)

    def px(x: float) -> float:
        return left + (x - x0) / (x1 - x0) * (width - left - right)

    def py(y: float) -> float:
        return top + (y1 - min(max(y, y0), y1)) / (y1 - y0) * (height - top - bottom)

    parts = [_svg(width, height, f"{y_label} over {x_label}: {', '.join(drawn)}")]
    for y in ticks(y0, y1):
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>')
        parts.append(f'<text class="tick end" x="{left - 8}" y="{py(y) + 4:.1f}">{short(y)}</text>')
    for x in ticks(x0, x1, 6):
        parts.append(f'<text class="tick mid" x="{px(x):.1f}" y="{height - bottom + 18}">{short(x)}</text>')
    middle = (left + width - right) / 2
    parts.append(f'<text class="axis mid" x="{middle:.0f}" y="{height - 6}">{inline(x_label)}</text>')
    parts.append(f'<text class="axis" x="{left}" y="{top - 3}">{inline(y_label)}</text>')
    labels = _spread([py(points[-1][1]) for points in strong.values()], 15, top + 4, height - bottom)
    for i, (name, points) in enumerate(strong.items()):
        number = i if colours is None else colours.get(name)
        colour = "muted" if number is None else f"k{number % NUM_COLOURS}" + (" dash" if number >= NUM_COLOURS else "")
        faint = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in drawn[name])
        line = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        end_x, end_y = px(points[-1][0]), py(points[-1][1])
        parts.append(f'<polyline class="faint {colour}" points="{faint}"/>')
        parts.append(f'<polyline class="line {colour}" points="{line}"><title>{inline(name)}</title></polyline>')
        parts.append(
            f'<line class="lead {colour}" x1="{end_x:.1f}" y1="{end_y:.1f}" '
            f'x2="{end_x + 12:.1f}" y2="{labels[i]:.1f}"/>'
        )
        parts.append(
            f'<text class="name {colour}" x="{end_x + 16:.1f}" y="{labels[i] + 4:.1f}">{inline(names[i])}</text>'
        )
    return Markup("".join([*parts, "</svg></div>"]))


@dataclass(frozen=True)
class Mark:
    """One estimate of an interval chart, all in 0..1; ``value`` None: only the interval is drawn. ``text``: the numbers
    at the right. ``colour`` is 0..7, or None for a muted baseline."""

    label: str
    value: float | None
    low: float
    high: float
    text: str
    colour: int | None = None


def intervals(rows: Sequence[tuple[str, Sequence[Mark]]], *, label: str) -> Markup:
    """An interval chart as SVG: dots with whiskers from 0 to 100 %, one row for each (name, marks), numbers at the
    right. ``label``: text for screen readers."""
    width, line, gap, top = WIDTH, 18, 13, 26
    left = _room((name for name, _ in rows), _NAME_WIDTH)
    right = _room((mark.text for _, marks in rows for mark in marks), _VALUE_WIDTH)
    height = top + sum(len(marks) * line + gap for _, marks in rows) + 6

    def px(share: float) -> float:
        return left + share * (width - left - right)

    parts = [_svg(width, height, label)]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<line class="grid" x1="{px(tick):.1f}" x2="{px(tick):.1f}" y1="{top - 6}" y2="{height - 4}"/>')
        parts.append(f'<text class="tick mid" x="{px(tick):.1f}" y="{top - 11}">{tick * 100:.0f} %</text>')
    y = float(top)
    for name, marks in rows:
        parts.append(f'<text class="row" x="0" y="{y + 12:.1f}">{inline(name)}</text>')
        for mark in marks:
            centre = y + line / 2
            colour = _colour_class(mark.colour)
            hint = f"<title>{inline(f'{name}, {mark.label}: {mark.text}')}</title>"
            parts.append(f'<g class="mark {colour}">{hint}')
            if mark.value is not None:
                parts.append(
                    f'<line class="whisker" x1="{px(mark.low):.1f}" x2="{px(mark.high):.1f}" '
                    f'y1="{centre:.1f}" y2="{centre:.1f}"/>'
                    f'<circle cx="{px(mark.value):.1f}" cy="{centre:.1f}" r="4.5" />'
                )
            parts.append(
                f'<text class="value" x="{width - right + 14}" y="{centre + 4:.1f}">{inline(mark.text)}</text></g>'
            )
            y += line
        y += gap
    return Markup("".join([*parts, "</svg></div>"]))


def _room(texts: Iterable[str], each: float) -> int:
    """Width reserved for the longest text, from 130 to 340 units. ``each``: width of a character."""
    return min(340, max(130, round(each * max(map(len, texts), default=0)) + 20))


def shares(rows: Sequence[tuple[str, Mapping[str, float]]], *, label: str) -> Markup:
    """Stacked horizontal bars of full width as SVG, one for each (name, shares by part), for example a mixture as asked
    and as built. ``label``: text for screen readers."""
    width, left, bar, gap, top = WIDTH, 80, 30, 12, 4
    names = list(dict.fromkeys(name for _, parts in rows for name in parts))
    height = top + len(rows) * (bar + gap)
    out = [_svg(width, height, label)]
    for r, (name, parts) in enumerate(rows):
        total = sum(parts.values()) or 1.0
        x, y = float(left), top + r * (bar + gap)
        out.append(f'<text class="row" x="0" y="{y + bar / 2 + 4:.1f}">{inline(name)}</text>')
        for part in names:
            share = parts.get(part, 0.0) / total
            length = share * (width - left)
            if length <= 0:
                continue
            hint = f"<title>{inline(f'{name}: {part} {share:.2%}')}</title>"
            out.append(
                f'<rect class="{_colour_class(names.index(part))}" x="{x:.1f}" y="{y}" height="{bar}" rx="3" '
                f'width="{max(length - 1.5, 0.5):.1f}">'
                f"{hint}</rect>"
            )
            if length > 7.5 * len(part) + 44:
                out.append(
                    f'<text class="inbar" x="{x + 8:.1f}" y="{y + bar / 2 + 4:.1f}">{inline(part)} {share:.1%}</text>'
                )
            x += length
    return Markup("".join([*out, "</svg></div>"]))


def _svg(width: int, height: int, label: str) -> str:
    return (
        f'<div class="fig"><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{inline(label)}">'
    )


def legend(entries: Sequence[tuple[str, int | None]]) -> Markup:
    """The legend of a figure as HTML. ``entries``: (name, colour from 0 or None for muted) in the figure's order."""
    return macro("parts", "legend")([(name, _colour_class(colour)) for name, colour in entries])


def _colour_class(colour: int | None) -> str:
    return "muted" if colour is None else f"k{colour % NUM_COLOURS}"
