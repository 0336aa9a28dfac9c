"""Draws a quantity of code and of text against the share of code in the mixture, with ratios as ticks, as SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lemur_ray.report.escape import inline
from lemur_ray.report.pages.figures import WIDTH, short, ticks

HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 56, 84, 24, 58


@dataclass(frozen=True)
class Point:
    """One point of a curve: the measurements (``values``, one per seed) at one ratio of code to text, their mean, and
    the ends of its interval, None without one."""

    ratio: str
    code_share: float
    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]


def ratio_chart(series: Mapping[str, Sequence[Point]], *, y_label: str) -> Markup:
    """One curve per name, as SVG, in colours k0, k1, .. in order; a point with an interval has whiskers. series: name
    -> points; y_label: of the axis."""
    everything = [point for points in series.values() for point in points]
    if not everything:
        return Markup('<p class="none">No points to draw.</p>')
    bounds = [v for p in everything for v in (*p.values, p.mean, p.low, p.high) if v is not None]
    pad = max(0.06 * (max(bounds) - min(bounds)), 1e-3)
    y0, y1 = min(bounds) - pad, max(bounds) + pad

    def px(share: float) -> float:
        return LEFT + 14 + share * (WIDTH - LEFT - RIGHT - 28)

    def py(value: float) -> float:
        return TOP + (y1 - value) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)

    label = inline(f"Held-out {y_label} against the share of code: {', '.join(series)}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{label}">'
    ]
    for y in ticks(y0, y1):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{py(y) + 4:.1f}">{short(y)}</text>')
    base = HEIGHT - BOTTOM
    for ratio, share in sorted({(p.ratio, p.code_share) for p in everything}, key=lambda pair: pair[1]):
        x = px(share)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{base}"/>')
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{base + 18}">{inline(_named(ratio, share))}</text>')
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{base + 33}">{share * 100:.0f} %</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis mid" x="{middle:.0f}" y="{HEIGHT - 6}">code : text, and the share of code</text>')
    parts.append(f'<text class="axis" x="{LEFT}" y="{TOP - 9}">{inline(y_label)}</text>')
    for number, (name, points) in enumerate(series.items()):
        ordered = sorted(points, key=lambda p: p.code_share)
        if not ordered:
            continue
        line = " ".join(f"{px(p.code_share):.1f},{py(p.mean):.1f}" for p in ordered)
        parts.append(f'<polyline class="line k{number}" points="{line}"/>')
        for p in ordered:
            x = px(p.code_share)
            hint = f"<title>{inline(f'{name}, {p.ratio}: {p.mean:.4f}')}</title>"
            parts.append(f'<g class="mark k{number}">{hint}')
            if p.low is not None and p.high is not None:
                parts.append(
                    f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{py(p.low):.1f}" y2="{py(p.high):.1f}"/>'
                )
                parts += [f'<circle cx="{x:.1f}" cy="{py(v):.1f}" r="2" opacity="0.55"/>' for v in p.values]
            parts.append(f'<circle cx="{x:.1f}" cy="{py(p.mean):.1f}" r="4.5"/></g>')
        last = ordered[-1]
        parts.append(
            f'<text class="name k{number}" x="{px(last.code_share) + 12:.1f}" y="{py(last.mean) + 4:.1f}">'
            f"{inline(f'{name} {last.mean:.2f}')}</text>"
        )
    return Markup("".join([*parts, "</svg>"]))


def standalone(chart: str) -> str:
    """The SVG of ``ratio_chart`` as a file's content, with the colours that a page has in its style sheet."""
    rules = [
        "text{font:12.5px system-ui,sans-serif;fill:#1d2126}.tick,.axis{fill:#5d6570;font-size:11.5px}",
        ".mid{text-anchor:middle}.end{text-anchor:end}.grid{stroke:#e3e3de}.line{fill:none;stroke-width:2}",
        ".whisker{stroke-width:3;opacity:.4}",
    ]
    for number, colour in enumerate(("#2a6fdb", "#d9730d")):
        rules.append(f".line.k{number},.k{number} .whisker{{stroke:{colour}}}")
        rules.append(f".name.k{number},.k{number} circle{{fill:{colour}}}")
    return str(chart).replace(">", f"><style>{''.join(rules)}</style>", 1)


def _named(ratio: str, share: float) -> str:
    return {0.0: "text alone", 1.0: "code alone"}.get(share, ratio.replace(":", " : "))
