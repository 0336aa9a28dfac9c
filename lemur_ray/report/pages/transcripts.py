"""One episode as a collapsed element: each turn with the reply, the action understood, the observation and its cost.

Knows nothing of rates or of the page that holds the episode."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory, opening_digest, split_opening
from lemur_ray.report.escape import block
from lemur_ray.report.ledgers.pictures import TurnPicture
from lemur_ray.report.pages.rendering import macro
from lemur_ray.text.tools_in_words import spell_out

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
    """One turn; texts are HTML. ``understood``: the action, if it differs from the reply."""

    number: int
    thoughts: Markup
    valid: bool
    reply: Markup
    understood: str | None
    cost: Markup
    observation: Markup
    view: _View | None


def mark(episode: Episode) -> str:
    """CSS class of an outcome: ok, part (scored above 0 but not solved), miss (not scored), or empty: scored 0."""
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
    running: bool = False,
) -> Markup:
    """One episode as a collapsed element of id ``anchor``. ``who``: name of its policy, for pages with several.
    ``episode_list``: address of the page with permanent links. ``shared``: receives the shared beginning of the
    opening, then left out here. ``pictures``: by turn, 0 before the first. ``running``: the episode has not ended."""
    steps = episode.trajectory.steps
    remarks = [f"blame: {episode.blame.value}"] if not (episode.outcome.scored or running) else []
    remarks += [text for text in (episode.detail, episode.note) if text]
    offered = [("", episode.trajectory.tools)]
    offered += [(f" after turn {turn}", step.tools) for turn, step in enumerate(steps, 1)]
    for when, tools in offered:
        names = ", ".join(str(tool["function"]["name"]) for tool in tools)
        remarks += [f"tools offered natively{when}: {names}"] if names else []
    remarks += [f"earlier: {reason}" for reason in episode.retried]
    head = {
        "mark": "miss" if running else mark(episode),
        "outcome": "running" if running else episode.outcome.value.replace("_", " "),
        "facts": _facts(episode, running),
        "strip": "" if running else strip(steps),
        "who": who,
        "episode_list": episode_list,
        "answer": next((s.action for s in reversed(steps) if s.action is not None), None),
        "remarks": remarks,
    }
    views = {turn: _view(one, episode.trajectory) for turn, one in (pictures or {}).items()}
    opening = _opening(episode.trajectory, shared, views.get(0))
    turns = [_turn(number, step, views.get(number)) for number, step in enumerate(steps, 1)]
    return macro("transcript", "transcript")(episode, anchor, head, opening, turns)


def _facts(episode: Episode, running: bool) -> str:
    turns = len(episode.trajectory.steps)
    facts = [f"score {episode.score:.3f}"] if episode.score not in (None, 0.0, 1.0) else []
    facts += [f"{turns} turn{'' if turns == 1 else 's'}", *([] if running else [f"{episode.wall_s:.1f} s"])]
    facts += [f"attempt {episode.attempts}"] if episode.attempts > 1 else []
    facts += [f"epoch {episode.key.epoch}"] if episode.key.epoch else []
    facts += [episode.started[:16].replace("T", " ")] if episode.started else []
    return " · ".join(facts)


def _observation(trajectory: Trajectory, turn: int) -> str:
    """The observation after a turn; of turn 0 the last message before the first reply."""
    if turn:
        return trajectory.steps[turn - 1].observation if turn <= len(trajectory.steps) else ""
    return trajectory.opening[-1].content if trajectory.opening else ""


def _view(picture: TurnPicture, trajectory: Trajectory) -> _View:
    """The view of a turn. Its text is left out if the observation contains all of it."""
    turn, text, box = picture.view.turn, picture.view.text, picture.view.acted_on
    observation = _observation(trajectory, turn)
    label = f"what was seen {f'after turn {turn}' if turn else 'before the first turn'}"
    if sent := [step.picture for step in trajectory.steps[turn : turn + 1] if step.picture]:
        label += f"; the model was sent the picture {sent[0]}"
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
        reply=Markup(block(spell_out(step.reply, step.tool_calls))),
        understood=None if same or action is None else action[:2000],
        cost=turn_cost(step),
        observation=Markup(block("\n\n".join([*step.results, *filter(None, [step.observation])]))),
        view=view,
    )


_WIDTH, _BAR, _HIGH, _LANE = 10, 8, 26, 14


def strip(steps: Sequence[Step]) -> Markup:
    """An SVG with rows of bars (seconds, tokens, reward), one bar for each turn; empty for fewer than two turns."""
    if len(steps) < 2:
        return Markup("")
    longest = max(step.policy_s + step.env_s for step in steps) or 1.0
    most = max(step.completion_tokens for step in steps) or 1
    policy = _bars(steps, lambda s: s.policy_s / longest * _HIGH, lambda s: _HIGH)
    env = _bars(steps, lambda s: s.env_s / longest * _HIGH, lambda s: _HIGH - s.policy_s / longest * _HIGH)
    tokens = _bars(steps, lambda s: s.completion_tokens / most * _LANE, lambda s: _HIGH + 4 + _LANE)
    top = _HIGH + _LANE + 8
    gained = _bars(steps, lambda s: 6.0 if s.reward > 0 else 0.0, lambda s: top + 6)
    lost = _bars(steps, lambda s: 6.0 if s.reward < 0 else 0.0, lambda s: top + 6)
    width = _WIDTH * len(steps)
    summary = (
        f"{len(steps)} turns: policy {sum(s.policy_s for s in steps):.1f} s, "
        f"environment {sum(s.env_s for s in steps):.1f} s, {sum(s.prompt_tokens for s in steps):,} tokens in, "
        f"{sum(s.completion_tokens for s in steps):,} out, reward {sum(s.reward for s in steps):g}; "
        f"the longest turn took {longest:.2f} s, the longest reply {most:,} tokens"
    )
    drawn = "".join(
        f'<path class="{kind}" d="{path}"/>'
        for kind, path in (("sp", policy), ("se", env), ("st", tokens), ("sg", gained), ("sl", lost))
        if path
    )
    return Markup(
        f'<figure class="strip"><svg viewBox="0 0 {width} {top + 7}" style="max-width:{width * 2}px" role="img" '
        f'preserveAspectRatio="none" aria-label="{summary}"><title>{summary}</title>{drawn}</svg>'
        '<figcaption><span><b class="sp"></b>policy</span><span><b class="se"></b>environment</span>'
        '<span><b class="st"></b>tokens of replies</span><span><b class="sg"></b>reward</span>'
        f"{summary}</figcaption></figure>"
    )


def turn_cost(step: Step) -> Markup:
    """One line of HTML with the numbers of a turn: seconds of policy and environment, tokens in and out, reward."""
    parts = [f"{step.policy_s:.2f} s policy"]
    parts += [f"{step.waited_s:.2f} s of it waiting"] if step.waited_s else []
    parts += [f"{step.env_s:.2f} s environment"]
    if step.prompt_tokens + step.completion_tokens:
        parts.append(f"{step.prompt_tokens:,} tokens in, {step.completion_tokens:,} out")
    return Markup(" · ".join([*parts, f"reward {step.reward:g}"]))


def _bars(steps: Sequence[Step], height: Callable[[Step], float], foot: Callable[[Step], float]) -> str:
    """One path of a rectangle per step; ``foot`` is the y of its lower edge, ``height`` its height."""
    parts = []
    for place, step in enumerate(steps):
        if (high := height(step)) > 0.05:
            parts.append(f"M{place * _WIDTH + 1} {foot(step):.4g}v-{max(high, 0.8):.3g}h{_BAR}v{max(high, 0.8):.3g}z")
    return "".join(parts)
