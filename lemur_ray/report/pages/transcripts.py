"""One episode as readable HTML: collapsed, each turn with what was said, understood, answered, and what it took.

Knows nothing of rates, figures or of which page an episode stands on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory, opening_digest, split_opening
from lemur_ray.report.escape import block, inline
from lemur_ray.report.ledgers.pictures import TurnPicture
from lemur_ray.report.pages.turn_strip import figures, strip

Shared = dict[str, tuple[Message, ...]]
"""Beginnings that openings of a page have in common, by name: shown once, where the page ends."""


def mark(episode: Episode) -> str:
    """CSS class of an outcome: ok, part (scored above 0 without being solved), miss (not scored), or empty."""
    if not episode.outcome.scored:
        return "miss"
    if episode.outcome is Outcome.SOLVED:
        return "ok"
    return "part" if episode.score else ""


def transcript(
    episode: Episode,
    anchor: str,
    who: str = "",
    lasting: str = "",
    shared: Shared | None = None,
    seen: Mapping[int, TurnPicture] | None = None,
) -> str:
    """One episode as a collapsed element with the id ``anchor``.

    ``who`` played it, where a page has several. ``lasting``: an address of it that stays. ``shared``: filled with what
    its opening has in common with others, which is then left out here. ``seen``: by turn, 0 before the first.
    """
    steps = episode.trajectory.steps
    facts = [f"{len(steps)} turn{'' if len(steps) == 1 else 's'}", f"{episode.wall_s:.1f} s"]
    if episode.score not in (None, 0.0, 1.0):
        facts.insert(0, f"score {episode.score:.3f}")
    if episode.attempts > 1:
        facts.append(f"attempt {episode.attempts}")
    if episode.key.epoch:
        facts.append(f"epoch {episode.key.epoch}")
    facts += [episode.started[:16].replace("T", " ")] if episode.started else []
    head = (
        f'<summary><span class="end {mark(episode)}">{inline(episode.outcome.value.replace("_", " "))}</span>'
        f'<span class="task">{inline(episode.category)} · {inline(episode.key.task)}'
        f"{f'<i>{inline(who)}</i>' if who else ''}</span>"
        f'<span class="facts">{inline(" · ".join(facts))}</span></summary>'
    )
    link = f'<a class="lasting" href="{inline(lasting)}#{anchor}">link to this episode</a>' if lasting else ""
    views = {turn: _view(one, _told(episode.trajectory, turn)) for turn, one in (seen or {}).items()}
    turns = "".join(_turn(i, step, views.get(i, "")) for i, step in enumerate(steps, 1))
    ends = [f"blame: {episode.blame.value}"] if not episode.outcome.scored else []
    ends += [text for text in (episode.detail, episode.note) if text]
    ends += [f"earlier: {reason}" for reason in episode.retried]
    end = "".join(f'<div class="m"><pre>{block(text, 4000)}</pre></div>' for text in ends)
    opening = f'<div class="opening">{_opening(episode.trajectory, shared)}{views.get(0, "")}</div>'
    talk = f"{link}{strip(steps)}{opening}{turns}{_reference(episode)}{end}"
    return f'<details class="ep" id="{anchor}">{head}<div class="talk">{talk}</div></details>\n'


def _told(trajectory: Trajectory, turn: int) -> str:
    """The observation after a turn; of turn 0 the last message before the first reply."""
    if turn:
        return trajectory.steps[turn - 1].observation if turn <= len(trajectory.steps) else ""
    return trajectory.opening[-1].content if trajectory.opening else ""


def _view(seen: TurnPicture, told: str) -> str:
    """The picture with a frame around what the next action was on; the whole text, where a part of it was told."""
    drawn = ""
    if seen.address:
        (wide, high), box = seen.size, seen.view.acted_on
        frame = "<rect x='{:g}' y='{:g}' width='{:g}' height='{:g}'/>".format(*box) if box else ""
        said = f"what was seen {f'after turn {seen.view.turn}' if seen.view.turn else 'before the first turn'}"
        drawn = (
            f'<div class="shot"><img loading="lazy" src="{inline(seen.address)}" width="{wide}" height="{high}" '
            f'alt="{said}"><svg viewBox="0 0 {wide} {high}" aria-hidden="true">{frame}</svg></div>'
        )
    text = seen.view.text
    whole = f'<details class="m"><summary>all {len(text.splitlines()):,} lines that were seen</summary>'
    whole += f"<pre>{block(text, 100_000)}</pre></details>"
    shown = drawn + (whole if text and text not in told else "")
    return f'<div class="o">{shown}</div>' if shown else ""


def _turn(number: int, step: Step, view: str = "") -> str:
    said = block(step.reply) if step.reply else '<i class="c">(empty reply)</i>'
    remarks = []
    if not step.valid:
        remarks.append("not a valid action")
    if step.action is not None and step.action.strip() != step.reply.strip():
        remarks.append(f"understood as: {inline(step.action[:2000])}")
    note = "".join(f'<div class="m">{line}</div>' for line in (*remarks, figures(step)))
    thoughts = (
        f'<details class="m"><summary>thoughts</summary><pre>{block(step.reasoning)}</pre></details>'
        if step.reasoning
        else ""
    )
    return (
        f'<div class="turn">{thoughts}<div class="a{"" if step.valid else " bad"}"><span class="t">{number}</span>'
        f"<pre>{said}</pre>{note}</div>"
        f'<div class="o"><pre>{block(step.observation) or "(no output)"}</pre></div>{view}</div>'
    )


def _opening(trajectory: Trajectory, shared: Shared | None) -> str:
    messages: Sequence[Message] = trajectory.opening
    before = ""
    if shared is not None and trajectory.shared:
        head, messages = split_opening(trajectory)
        name = opening_digest(head)
        shared[name] = head
        before = (
            f'<p class="m"><a href="#s{name}">{trajectory.shared:,} characters that many episodes begin with</a>, '
            "at the end of this page; then:</p>"
        )
    return before + said_before(messages)


def said_before(messages: Sequence[Message]) -> str:
    """Messages as they stand before the first reply."""
    return "".join(
        f'<div class="o"><span class="who">{inline(m.role)}</span><pre>{block(m.content)}</pre></div>' for m in messages
    )


def _reference(episode: Episode) -> str:
    """The answer beside what it was compared with, where a benchmark gives that."""
    if not episode.reference:
        return ""
    last = next((s.action for s in reversed(episode.trajectory.steps) if s.action is not None), None)
    answer = block(last, 4000) if last is not None else '<i class="c">(none was understood)</i>'
    return (
        f'<div class="beside"><div><span class="who">answer</span><pre>{answer}</pre></div><div>'
        '<span class="who">reference, which the model never saw</span>'
        f"<pre>{block(episode.reference, 4000)}</pre></div></div>"
    )


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
