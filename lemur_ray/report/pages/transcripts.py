"""Episodes as readable pages: each one collapsed, each turn with what was said, understood and answered.

Knows nothing of rates or figures. A page holds at most about ``PAGE_BYTES``; longer runs are cut into several pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lemur_ray.agents.trajectory import Episode, Outcome, Step
from lemur_ray.report.escape import block, inline
from lemur_ray.report.pages.markup import page

PAGE_BYTES = 4_000_000
"""A page of transcripts is closed once it holds this many bytes."""


def mark(episode: Episode) -> str:
    """CSS class of an outcome: ok, part (scored above 0 without being solved), miss (not scored), or empty."""
    if not episode.outcome.scored:
        return "miss"
    if episode.outcome is Outcome.SOLVED:
        return "ok"
    return "part" if episode.score else ""


def _turn(number: int, step: Step) -> str:
    said = block(step.reply) if step.reply else '<i class="c">(empty reply)</i>'
    remarks = []
    if not step.valid:
        remarks.append("not a valid action")
    if step.action is not None and step.action.strip() != step.reply.strip():
        remarks.append(f"understood as: {inline(step.action[:2000])}")
    if step.reward:
        remarks.append(f"reward {step.reward:g}")
    note = f'<div class="m">{" · ".join(remarks)}</div>' if remarks else ""
    return (
        f'<div class="a{"" if step.valid else " bad"}"><span class="t">{number}</span><pre>{said}</pre>{note}</div>'
        f'<div class="o"><pre>{block(step.observation) or "(no output)"}</pre></div>'
    )


def transcript(episode: Episode, anchor: str) -> str:
    """One episode as a collapsed element with the id ``anchor``."""
    steps = episode.trajectory.steps
    facts = [f"{len(steps)} turn{'' if len(steps) == 1 else 's'}", f"{episode.wall_s:.1f} s"]
    if episode.score not in (None, 0.0, 1.0):
        facts.insert(0, f"score {episode.score:.3f}")
    if episode.attempts > 1:
        facts.append(f"attempt {episode.attempts}")
    if episode.key.epoch:
        facts.append(f"epoch {episode.key.epoch}")
    head = (
        f'<summary><span class="end {mark(episode)}">{inline(episode.outcome.value.replace("_", " "))}</span>'
        f'<span class="task">{inline(episode.category)} · {inline(episode.key.task)}</span>'
        f'<span class="facts">{inline(" · ".join(facts))}</span></summary>'
    )
    opening = "".join(
        f'<div class="o"><span class="who">{inline(m.role)}</span><pre>{block(m.content)}</pre></div>'
        for m in episode.trajectory.opening
    )
    turns = "".join(_turn(i, step) for i, step in enumerate(steps, 1))
    ends = [f"blame: {episode.blame.value}"] if not episode.outcome.scored else []
    ends += [episode.detail] if episode.detail else []
    ends += [f"earlier: {reason}" for reason in episode.retried]
    end = "".join(f'<div class="m"><pre>{block(text, 4000)}</pre></div>' for text in ends)
    return f'<details class="ep" id="{anchor}">{head}<div class="talk">{opening}{turns}{end}</div></details>\n'


def inline_transcripts(episodes: Sequence[Episode], prefix: str) -> tuple[str, list[str]] | None:
    """All transcripts for the page at hand, and the address of each; None where they would not fit on one page."""
    parts, size = [], 0
    for i, episode in enumerate(episodes, 1):
        parts.append(transcript(episode, f"{prefix}{i}"))
        size += len(parts[-1].encode())
        if size > PAGE_BYTES:
            return None
    return "".join(parts), [f"#{prefix}{i}" for i in range(1, len(parts) + 1)]


def write_transcripts(folder: Path, name: str, title: str, episodes: Sequence[Episode], back: str) -> list[str]:
    """Write the pages ``<name>.html`` (then ``<name>-2.html`` ...) into ``folder``; the address of each episode.

    ``back`` is the page to return to, relative to ``folder``. Addresses are relative to the folder above ``folder``.
    """
    pages: list[list[str]] = [[]]
    size, links = 0, []
    for i, episode in enumerate(episodes, 1):
        html = transcript(episode, f"e{i}")
        if pages[-1] and size + len(html.encode()) > PAGE_BYTES:
            pages.append([])
            size = 0
        pages[-1].append(html)
        size += len(html.encode())
        links.append(f"{folder.name}/{_file(name, len(pages))}#e{i}")
    folder.mkdir(parents=True, exist_ok=True)
    for number, parts in enumerate(pages, 1):
        others = " ".join(f'<a href="{_file(name, n)}">{n}</a>' for n in range(1, len(pages) + 1))
        more = f"<span>pages {others}</span>" if len(pages) > 1 else ""
        body = (
            f'<nav><a href="{inline(back)}">back to the report</a>{more}</nav><h1>{inline(title)}</h1>'
            f'<p class="lede">{len(parts)} of {len(episodes)} episodes. Open one to read it turn by turn.</p>'
        )
        (folder / _file(name, number)).write_text(page(title, body + "".join(parts)), encoding="utf-8")
    return links


def _file(name: str, number: int) -> str:
    return f"{name}.html" if number == 1 else f"{name}-{number}.html"


def squares(episodes: Sequence[Episode], links: Sequence[str]) -> str:
    """Every episode as a small square that leads to its transcript."""
    cells = []
    for episode, link in zip(episodes, links, strict=True):
        said = (
            f"{episode.category} · {episode.key.task}: {episode.outcome.value}, {len(episode.trajectory.steps)} turns"
        )
        cells.append(
            f'<a class="{mark(episode)}" href="{inline(link)}" title="{inline(said)}" aria-label="{inline(said)}"></a>'
        )
    return f'<div class="grid-of">{"".join(cells)}</div>'
