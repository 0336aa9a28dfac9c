"""From the episodes of a round and their traces to a batch of policy gradients.

The episodes of a task are a group. Groups without differences, and those with fewer than two scored episodes, are
counted and not trained. Pure; knows nothing of devices and of how the episodes were played."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lemur_ray.agents.trajectory import Episode
from lemur_ray.improve.advantages import Member, Turn, advantages
from lemur_ray.improve.config import BadInput, Reinforcement
from lemur_ray.improve.traces import TracedTurn, Traces
from lemur_ray.improve.training_rows import Rows, check_tasks, packed_rows


class GroupBatch(NamedTuple):
    """The training rows of a round, and counts of its groups."""

    rows: Rows | None
    """As of ``training_rows.rows_of``; ``loss_weights`` are advantages, ``drawn`` is 1 where an id was drawn, and
    ``behaviour`` its log-probability; ``normaliser`` (rows,) counts the drawn ids. None: no group has differences."""
    numbers: dict[str, Any]
    """Counts of groups, and ``cut_ids``: drawn ids behind the end of a row, which are not trained."""


def group_batch(
    episodes: Sequence[Episode],
    traces: Traces,
    algorithm: Reinforcement,
    training_tasks: Sequence[str],
    filler_id: int,
    seq_len: int,
    shuffle_seed: tuple[int, int] | None = None,
) -> GroupBatch:
    """Training rows of a round's episodes. traces: drawn ids and log-probabilities, by key of the episode.
    training_tasks: ids of the tasks that may be trained. filler_id: id that pads rows of ``seq_len`` tokens.
    shuffle_seed: deal the rewards of each group out at random among its episodes (a control). algorithm: how advantages
    are computed (``advantages``). Raises BadInput for a held-out task, or a reward outside [0, 1]."""
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in check_tasks(episodes, training_tasks):
        groups[episode.key.task].append(episode)
    random = np.random.default_rng(shuffle_seed) if shuffle_seed else None
    pieces: list[dict[str, np.ndarray]] = []
    counts = dict.fromkeys(("mixed", "flat", "alike", "incomplete"), 0)
    for task, members in groups.items():
        if len(members) < 2:
            counts["incomplete"] += 1
            continue
        traced = [traces[str(episode.key)] for episode in members]
        group = [_member(episode, turns) for episode, turns in zip(members, traced, strict=True)]
        if random is not None:
            order = random.permutation(len(group))
            group = [member._replace(reward=group[i].reward) for member, i in zip(group, order, strict=True)]
        try:
            values = advantages(group, algorithm)
        except ValueError as error:
            raise BadInput(f"task {task} of {members[0].key.benchmark}: {error}") from error
        is_mixed = any(one.any() for one in values)
        counts["alike"] += not is_mixed and len({tuple(turn.drawn for turn in turns) for turns in traced}) == 1
        counts["mixed" if is_mixed else "flat"] += 1
        if is_mixed:
            pieces += [piece for turns, one in zip(traced, values, strict=True) for piece in sequences(turns, one)]
    counts["cut_ids"] = sum(int(piece["drawn"][seq_len:].sum()) for piece in pieces)
    pieces = [piece for piece in pieces if piece["drawn"][1:seq_len].any()]
    rows = packed_rows(pieces, filler_id, seq_len) if pieces else None
    if rows is not None:
        rows["normaliser"] = rows["drawn"].sum(axis=1).astype(np.float32)
    states = {turn.state for turns in traces.values() for turn in turns if turn.state}
    return GroupBatch(rows, {"groups": len(groups), **counts, "states": len(states), **_drawing(episodes, traces)})


def sequences(turns: Sequence[TracedTurn], values: np.ndarray) -> list[dict[str, np.ndarray]]:
    """The token sequences of an episode as pieces for ``packed_rows``; a new one begins where a prompt does not
    continue the ids before. values: advantage of each turn. turns: those of the episode."""
    pieces: list[list[tuple[TracedTurn, float]]] = []
    for turn, value in zip(turns, values, strict=True):
        if turn.begins:
            pieces.append([])
        pieces[-1].append((turn, float(value)))
    return [
        {
            "ids": np.concatenate([[*turn.prompt, *turn.drawn] for turn, _ in piece]).astype(np.int32),
            "loss_weights": _spread(piece, [np.full(len(turn.drawn), value) for turn, value in piece]),
            "drawn": _spread(piece, [np.ones(len(turn.drawn)) for turn, _ in piece]),
            "behaviour": _spread(piece, [np.array(turn.logprobs) for turn, _ in piece]),
        }
        for piece in pieces
    ]


def _spread(piece: Sequence[tuple[TracedTurn, float]], of_drawn: Sequence[np.ndarray]) -> np.ndarray:
    """(ids,) float32: the values of the drawn ids, 0 for those of prompts."""
    parts = [
        part for (turn, _), values in zip(piece, of_drawn, strict=True) for part in (np.zeros(len(turn.prompt)), values)
    ]
    return np.concatenate(parts).astype(np.float32)


def _member(episode: Episode, turns: Sequence[TracedTurn]) -> Member:
    steps = episode.trajectory.steps
    commands = (step.reply if step.action is None else step.action for step in steps)
    score = episode.score
    assert score is not None
    return Member(score, [Turn(turn.state, command) for turn, command in zip(turns, commands, strict=True)])


def _drawing(episodes: Sequence[Episode], traces: Traces) -> dict[str, float]:
    """entropy: mean of minus the log-probability of a drawn id, in nats; repeated: share of the turns, after the first
    of their episode, whose reply is that of the turn before."""
    logprobs = [value for turns in traces.values() for turn in turns for value in turn.logprobs]
    pairs = [
        before.reply == step.reply
        for episode in episodes
        for before, step in zip(episode.trajectory.steps, episode.trajectory.steps[1:], strict=False)
    ]
    return {
        "entropy": round(-float(np.mean(logprobs)), 6) if logprobs else 0.0,
        "repeated": round(sum(pairs) / len(pairs), 6) if pairs else 0.0,
    }


def round_batches(num_rows: int, updates: int, rows_per_step: int, seed: tuple[int, int]) -> np.ndarray:
    """(updates, width) row numbers for a round's updates: every row once, shuffled by ``seed``; -1 where a batch is not
    full. width is a multiple of ``rows_per_step`` by a number of the form 2^k or 3 * 2^k, so that few programs are
    compiled. num_rows: rows of the round."""
    wanted = math.ceil(math.ceil(num_rows / updates) / rows_per_step)
    sizes = (size << power for power in range(wanted.bit_length() + 1) for size in (1, 3))
    width = min(size for size in sizes if size >= wanted) * rows_per_step
    order = np.full((updates, width), -1)
    parts = np.array_split(np.random.default_rng(seed).permutation(num_rows), updates)
    for row, part in zip(order, parts, strict=True):
        row[: len(part)] = part
    return order
