"""Training conversations from solved agent episodes: selection by quality, removal of duplicates, conversion."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.instruct.conversation import Conversation, fault
from lemur_ray.text.tools_in_words import spell_out


@dataclass(frozen=True)
class SolvedFilter:
    """Conditions that a solved episode must meet to become training data."""

    min_score: float = 1.0
    """Minimum score of an episode."""
    max_invalid: float = 0.0
    """Maximum fraction of turns with an invalid action."""
    max_turns: int = 0
    """Maximum number of turns (replies of the agent). 0: no limit."""
    per_task: int = 0
    """Maximum number of episodes per task, shortest first. 0: all distinct ones."""


@dataclass
class Selection:
    """The selected episodes, and the number of dropped ones by reason."""

    episodes: list[Episode] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def select(episodes: Iterable[Episode], rules: SolvedFilter) -> Selection:
    """Select the solved episodes that meet the rules, shortest first, without those of a task whose replies equal
    another's. Also dropped: those with a remark of trouble, those in which the policy saw pictures, those that are no
    valid conversation."""
    chosen = Selection()
    seen: set[tuple[str, ...]] = set()
    of_task: Counter[tuple[str, str]] = Counter()
    ranked = sorted(episodes, key=lambda episode: len(episode.trajectory.steps))  # stable: ledger order where equal
    for episode in ranked:
        task = (episode.key.benchmark, episode.key.task)
        content = (*task, *(spell_out(step.reply, step.tool_calls) for step in episode.trajectory.steps))
        if reason := _reason(episode, rules):
            chosen.dropped[reason] += 1
        elif content in seen:
            chosen.dropped["duplicate"] += 1
        elif rules.per_task and of_task[task] >= rules.per_task:
            chosen.dropped["enough_of_task"] += 1
        else:
            seen.add(content)
            of_task[task] += 1
            chosen.episodes.append(episode)
    return chosen


def _reason(episode: Episode, rules: SolvedFilter) -> str | None:
    steps = episode.trajectory.steps
    if episode.outcome is not Outcome.SOLVED:
        return "not_solved"
    if (episode.score or 0.0) < rules.min_score:
        return "low_score"
    if rules.max_turns and len(steps) > rules.max_turns:
        return "too_many_turns"
    if sum(not step.valid for step in steps) > rules.max_invalid * len(steps):
        return "invalid_actions"
    if episode.detail:
        return "cut_or_troubled"
    if any(step.pictured for step in steps):
        return "saw_pictures"
    return next((why for one in conversations_of(episode) if (why := fault(one))), None)


def conversations_of(episode: Episode) -> list[Conversation]:
    """Training conversations of an episode, in which every reply follows the messages that its policy was shown; at
    least one. Turns share a conversation as long as each prompt continues the one before. If a prompt omits or changes
    earlier messages, or the tools change, a new conversation begins, named after its first turn, with loss on its own
    replies only. Worked examples, which no model wrote, have loss weight 0; replies have that of their step."""
    trajectory, name = episode.trajectory, str(episode.key)
    parts: list[tuple[int, list[Message]]] = []
    continued: tuple[Message, ...] | None = None
    after: list[Message] = []
    for turn, step in enumerate(trajectory.steps):
        shown, (reply, *answers) = trajectory.shown(turn), step.messages()
        if shown != continued or (turn and trajectory.steps[turn - 1].tools):
            parts.append((turn + 1, list(_read_only(shown))))
            after = []
        parts[-1][1].extend((*after, replace(reply, weight=step.weight)))
        continued, after = (*shown, reply, *answers), answers
    if len(parts) <= 1:
        whole = parts[0][1] if parts else _read_only(trajectory.opening)
        return [Conversation(episode.key.benchmark, name, tuple(whole), trajectory.tools)]
    return [
        Conversation(episode.key.benchmark, f"{name}|turn {turn}", tuple(messages), trajectory.tools_of(turn - 1))
        for turn, messages in parts
    ]


def _read_only(messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(replace(one, weight=0) if one.role == "assistant" else one for one in messages)
