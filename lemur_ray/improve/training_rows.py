"""From the episodes of a round to packed rows: which replies are trained, with which weight, in which order.

Pure functions of the ledger's episodes; knows nothing of devices and of how the episodes were played."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.corpus.packing import expand, pack
from lemur_ray.improve.config import Algorithm, BadInput
from lemur_ray.instruct.solved import conversations_of
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Example:
    """A conversation to train on; ``weight`` multiplies that of every trained token."""

    messages: tuple[Message, ...]
    weight: float = 1.0
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that were offered natively."""


def examples_of(
    episodes: Iterable[Episode], algorithm: Algorithm, training_tasks: Iterable[str], per_task: int = 1
) -> list[Example]:
    """The training conversations of a round's episodes, in their order. teacher: every scored episode, lost ones too,
    with the weights of its steps. wins: of each task at most ``per_task`` won episodes, shortest first, without refused
    replies; a rarely won task has more weight: 1.1 minus its share of wins. Raises BadInput for a scored episode of a
    task that is not in ``training_tasks``."""
    scored = check_tasks(episodes, training_tasks)
    if algorithm == "teacher":
        return [Example(one.messages, 1.0, one.tools) for episode in scored for one in conversations_of(episode)]
    of_task: dict[str, list[Episode]] = defaultdict(list)
    for episode in scored:
        of_task[episode.key.task].append(episode)
    chosen = []
    for played in of_task.values():
        won = [episode for episode in played if episode.outcome is Outcome.SOLVED]
        weight = 1.1 - len(won) / len(played)
        for episode in sorted(won, key=lambda episode: len(episode.trajectory.steps))[:per_task]:
            chosen += [Example(one.messages, weight, one.tools) for one in conversations_of(_valid_only(episode))]
    return chosen


def check_tasks(episodes: Iterable[Episode], training_tasks: Iterable[str]) -> list[Episode]:
    """The scored episodes. Raises BadInput if one is of a task that is not in ``training_tasks``."""
    allowed, scored = set(training_tasks), [episode for episode in episodes if episode.outcome.scored]
    for episode in scored:
        if episode.key.task not in allowed:
            raise BadInput(f"task {episode.key.task} of {episode.key.benchmark} is held out: it is never trained on")
    return scored


def _valid_only(episode: Episode) -> Episode:
    """The episode with weight 0 on refused replies."""
    trajectory = episode.trajectory
    steps = (replace(step, weight=step.weight if step.valid else 0) for step in trajectory.steps)
    return replace(episode, trajectory=replace(trajectory, steps=tuple(steps)))


Rows = dict[str, np.ndarray]
"""tokens, targets, segment_ids, positions, loss_weights: (rows, length); source: (rows,) int32, all 0."""


def rows_of(examples: Sequence[Example], tokenizer: Tokenizer, seq_len: int) -> Rows | None:
    """Packed rows of the examples, those without a trained token left out; None if none is left.
    A conversation longer than a row is cut on the right. seq_len: tokens of a row. Raises TemplateError if the chat
    template rejects a conversation."""
    pieces: list[dict[str, np.ndarray]] = []
    for example in examples:
        ids, trained = encode_chat(tokenizer, example.messages, seq_len, tools=example.tools)
        weights = np.array(trained, np.float32) * np.float32(example.weight)
        if weights[1:].any():
            pieces.append({"ids": np.array(ids, np.int32), "loss_weights": weights})
    return packed_rows(pieces, tokenizer.filler_id, seq_len) if pieces else None


def packed_rows(pieces: Sequence[Mapping[str, np.ndarray]], filler_id: int, seq_len: int) -> Rows:
    """Rows of sequences, each cut on the right at ``seq_len``. A piece has ``ids`` and float32 values of each id; in
    the rows these stand where the id is predicted, and are 0 elsewhere. filler_id: fills the rest of a row."""
    lengths = np.array([min(len(piece["ids"]), seq_len) for piece in pieces])
    packing = pack(lengths, seq_len)
    shape = packing.num_rows, seq_len
    arrays = {name: np.full(shape, filler_id if name == "ids" else 0, pieces[0][name].dtype) for name in pieces[0]}
    used = np.zeros(packing.num_rows, np.int64)
    for document, row, length in zip(packing.document, packing.row, packing.length, strict=True):
        for name, values in arrays.items():
            values[row, used[row] : used[row] + length] = pieces[document][name][:length]
        used[row] += length
    pieces_per_row = np.bincount(packing.row, minlength=packing.num_rows)
    rows = expand(arrays.pop("ids"), packing.length, pieces_per_row).as_dict()
    within = rows["loss_weights"][:, :-1]  # 1 where the next id is of the same piece
    for name, values in arrays.items():
        predicted = np.zeros(shape, np.float32)
        predicted[:, :-1] = values[:, 1:] * within
        rows[name] = predicted
    return {**rows, "source": np.zeros(packing.num_rows, np.int32)}


def digest(rows: Rows | None) -> str:
    """16 hex digits of SHA-256 over names and bytes of the arrays; empty without rows."""
    if rows is None:
        return ""
    content = hashlib.sha256()
    for name in sorted(rows):
        content.update(name.encode() + np.ascontiguousarray(rows[name]).tobytes())
    return content.hexdigest()[:16]


def batch_order(num_rows: int, updates: int, rows_per_step: int, seed: tuple[int, int]) -> np.ndarray:
    """(updates, rows_per_step) row numbers: shuffled passes over all rows, each complete before the next begins.
    seed: of the run, and the number of the round. num_rows: rows there are, at least 1."""
    random, wanted = np.random.default_rng(seed), updates * rows_per_step
    passes = [random.permutation(num_rows) for _ in range(-(-wanted // num_rows))]
    return np.concatenate(passes)[:wanted].reshape(updates, rows_per_step)
