"""One episode as a collapsed element: each turn with the reply, the action understood, the observation and its cost.

Knows nothing of rates, of figures or of the page that holds the episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory, opening_digest, split_opening
from lemur_ray.report.escape import block
from lemur_ray.report.ledgers.pictures import TurnPicture
from lemur_ray.report.pages.rendering import macro
from lemur_ray.report.pages.turn_strip import strip, turn_cost

SharedOpenings = dict[str, tuple[Message, ...]]
"""Beginnings that several openings on a page have in common, by name; the page shows each once, at its end."""


@dataclass(frozen=True)
class _View:
    """The environment after a turn. ``frame``: x, y, width, height of the next action's target in the picture."""

    address: str
    width: int
    height: int
    label: str
    frame: Sequence[str]
    text: str


@dataclass(frozen=True)
class _Opening:
    """Messages before the first reply, without those of the shared beginning named ``shared``."""

    messages: Sequence[Message]
    shared: str
    view: _View | None


class _Turn(NamedTuple):
    """One turn; texts are HTML. ``understood``: the action, where it is not the reply itself."""

    number: int
    thoughts: Markup
    valid: bool
    reply: Markup
    understood: str | None
    cost: Markup
    observation: Markup
    view: _View | None


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
    episode_list: str = "",
    shared: SharedOpenings | None = None,
    pictures: Mapping[int, TurnPicture] | None = None,
) -> Markup:
    """One episode as a collapsed element with the id ``anchor``.

    ``who``: name of its policy, where a page has several. ``episode_list``: address of the page with permanent links.
    ``shared``: receives the beginning that the opening shares with others, which is then left out here. ``pictures``:
    by turn, 0 before the first.
    """
    steps = episode.trajectory.steps
    remarks = [f"blame: {episode.blame.value}"] if not episode.outcome.scored else []
    remarks += [text for text in (episode.detail, episode.note) if text]
    remarks += [f"earlier: {reason}" for reason in episode.retried]
    head = {
        "mark": mark(episode),
        "outcome": episode.outcome.value.replace("_", " "),
        "facts": _facts(episode),
        "strip": strip(steps),
        "who": who,
        "episode_list": episode_list,
        "answer": next((s.action for s in reversed(steps) if s.action is not None), None),
        "remarks": remarks,
    }
    views = {turn: _view(one, _observation(episode.trajectory, turn)) for turn, one in (pictures or {}).items()}
    opening = _opening(episode.trajectory, shared, views.get(0))
    turns = [_turn(number, step, views.get(number)) for number, step in enumerate(steps, 1)]
    return macro("transcript", "transcript")(episode, anchor, head, opening, turns)


def _facts(episode: Episode) -> str:
    turns = len(episode.trajectory.steps)
    facts = [f"score {episode.score:.3f}"] if episode.score not in (None, 0.0, 1.0) else []
    facts += [f"{turns} turn{'' if turns == 1 else 's'}", f"{episode.wall_s:.1f} s"]
    facts += [f"attempt {episode.attempts}"] if episode.attempts > 1 else []
    facts += [f"epoch {episode.key.epoch}"] if episode.key.epoch else []
    facts += [episode.started[:16].replace("T", " ")] if episode.started else []
    return " · ".join(facts)


def _observation(trajectory: Trajectory, turn: int) -> str:
    """The observation after a turn; of turn 0 the last message before the first reply."""
    if turn:
        return trajectory.steps[turn - 1].observation if turn <= len(trajectory.steps) else ""
    return trajectory.opening[-1].content if trajectory.opening else ""


def _view(picture: TurnPicture, observation: str) -> _View:
    """The view of a turn. Its text is left out where the observation holds all of it."""
    turn, text, box = picture.view.turn, picture.view.text, picture.view.acted_on
    label = f"what was seen {f'after turn {turn}' if turn else 'before the first turn'}"
    frame = [f"{value:g}" for value in box] if box else []
    return _View(picture.address, *picture.size, label, frame, text if text not in observation else "")


def _opening(trajectory: Trajectory, shared: SharedOpenings | None, view: _View | None) -> _Opening:
    if shared is None or not trajectory.shared:
        return _Opening(trajectory.opening, "", view)
    head, messages = split_opening(trajectory)
    name = opening_digest(head)
    shared[name] = head
    return _Opening(messages, name, view)


def _turn(number: int, step: Step, view: _View | None) -> _Turn:
    action = step.action
    same = action is None or action.strip() == step.reply.strip()
    return _Turn(
        number=number,
        thoughts=Markup(block(step.reasoning)),
        valid=step.valid,
        reply=Markup(block(step.reply)),
        understood=None if same or action is None else action[:2000],
        cost=turn_cost(step),
        observation=Markup(block(step.observation)),
        view=view,
    )
