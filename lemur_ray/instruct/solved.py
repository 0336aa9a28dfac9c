"""Solved episodes as conversations to train on: which are good enough, which are new, and what is left out and why.

Knows records of episodes and nothing of how they are played or stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.instruct.conversation import Conversation, fault


@dataclass(frozen=True)
class SolvedFilter:
    """What a solved episode must be like."""

    min_score: float = 1.0
    """Least score of an episode."""
    max_invalid: float = 0.0
    """Greatest share of turns whose action could not be carried out."""
    max_turns: int = 0
    """Most turns. 0: any number."""
    per_task: int = 0
    """Most episodes of one task, those with the fewest turns. 0: all that differ."""


@dataclass
class Selection:
    """The episodes that passed, and how many fell for each reason."""

    episodes: list[Episode] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def select(episodes: Iterable[Episode], rules: SolvedFilter) -> Selection:
    """Solved episodes that keep the rules, without those that say the same as an earlier one."""
    chosen = Selection()
    seen: set[tuple[str, ...]] = set()
    of_task: Counter[tuple[str, str]] = Counter()
    ranked = sorted(episodes, key=lambda episode: len(episode.trajectory.steps))  # stable: ledger order where equal
    for episode in ranked:
        task = (episode.key.benchmark, episode.key.task)
        content = (*task, *(step.reply for step in episode.trajectory.steps))
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
    """What its model read and said: the messages up to its last reply, or each turn by itself.

    By itself where a turn was not shown all that had been said: then only what was said in that turn is trained.
    Replies of worked examples are never trained: no model said them.
    """
    trajectory, name = episode.trajectory, str(episode.key)
    turns = range(len(trajectory.steps))
    opening = _read_only(trajectory.opening)
    whole = (*opening, *trajectory.messages()[len(opening) : -1])
    if not turns or trajectory.shown(turns[-1]) == trajectory.messages()[:-2]:
        return [Conversation(episode.key.benchmark, name, whole)]
    return [
        Conversation(
            episode.key.benchmark,
            f"{name}|turn {turn + 1}",
            (*_read_only(trajectory.shown(turn)), Message("assistant", trajectory.steps[turn].reply)),
        )
        for turn in turns
    ]


def _read_only(messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(replace(one, weight=0) if one.role == "assistant" else one for one in messages)
