"""Advantages: how much better each turn of an episode was than the other episodes of its task.

A group holds the episodes of one task. With R the reward of an episode, the advantage of its turns is

- rloo: R minus the mean of the others (Ahmadian et al. 2024, arXiv 2402.14740);
- grpo: R minus the mean of the group, divided by its standard deviation (Shao et al. 2024, arXiv 2402.03300);
- gigpo: that of rloo, plus the turn's discounted return minus the mean of those of all visits of the group to the same
  state (Feng et al. 2025, arXiv 2505.10978);
- state: mean reward of the visits of the group to this state with this command, minus that of all its visits.

Pure functions; knows nothing of tokens and of ledgers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lemur_ray.improve.config import Reinforcement

STATE_WEIGHT = 1.0
"""gigpo: weight of the part that compares visits to a state."""
DISCOUNT = 0.95
"""gigpo: discount of the reward for each turn that follows."""
_DEVIATION = 1e-6
"""grpo: added to the standard deviation."""
_ROUNDING = 1e-12
"""Advantages below this are differences of rounding alone."""


class Turn(NamedTuple):
    """One turn. state: digest of the environment's state before it; empty if unknown, which equals no other."""

    state: str
    command: str


class Member(NamedTuple):
    """One episode of a group: its reward and its turns."""

    reward: float
    """From 0 to 1."""
    turns: Sequence[Turn]


def advantages(group: Sequence[Member], algorithm: Reinforcement) -> list[np.ndarray]:
    """The advantage of each turn: an array (turns,) float64 for each episode, exactly 0 everywhere in a group without
    differences. algorithm: rloo, grpo, gigpo or state (formulas in the module). Raises ValueError for a group of one,
    and for a reward outside [0, 1]."""
    if len(group) < 2:
        raise ValueError("a group of one episode has nothing to be compared with")
    rewards = np.array([member.reward for member in group], float)
    if not ((rewards >= 0) & (rewards <= 1)).all():
        raise ValueError(f"rewards {', '.join(f'{one:g}' for one in rewards)}: expected numbers from 0 to 1")
    if algorithm == "state":
        return [np.where(np.abs(one) < _ROUNDING, 0.0, one) for one in _of_commands(group)]
    outcome = _centred(rewards)
    outcome = outcome / (rewards.std() + _DEVIATION) if algorithm == "grpo" else outcome * len(group) / (len(group) - 1)
    of_turns = _of_visits(group) if algorithm == "gigpo" else [np.zeros(len(member.turns)) for member in group]
    return [STATE_WEIGHT * turns + one for one, turns in zip(outcome, of_turns, strict=True)]


def _of_visits(group: Sequence[Member]) -> list[np.ndarray]:
    """Discounted return of each turn minus the mean of all visits to its state."""
    values = [np.zeros(len(member.turns)) for member in group]
    for places in _visits(group).values():
        returns = [group[i].reward * DISCOUNT ** (len(group[i].turns) - 1 - t) for i, t in places]
        for (i, t), value in zip(places, _centred(np.array(returns)), strict=True):
            values[i][t] = value
    return values


def _of_commands(group: Sequence[Member]) -> list[np.ndarray]:
    values = [np.zeros(len(member.turns)) for member in group]
    for places in _visits(group).values():
        rewards = _centred(np.array([group[i].reward for i, _ in places]))
        of_command: dict[str, list[float]] = defaultdict(list)
        for (i, t), reward in zip(places, rewards, strict=True):
            of_command[group[i].turns[t].command].append(reward)
        if len(of_command) < 2:
            continue
        for i, t in places:
            values[i][t] = np.mean(of_command[group[i].turns[t].command])
    return values


def _visits(group: Sequence[Member]) -> dict[str, list[tuple[int, int]]]:
    """State -> (member, turn) of each visit to it; unknown states are left out."""
    visits: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, member in enumerate(group):
        for t, turn in enumerate(member.turns):
            if turn.state:
                visits[turn.state].append((i, t))
    return visits


def _centred(values: np.ndarray) -> np.ndarray:
    """Values minus their mean: exactly 0 if all are equal."""
    return np.zeros(len(values)) if values.min() == values.max() else values - values.mean()
