"""Policies that repeat existing replies to grade them again: those in a ledger, or in a file from anywhere.

``ledger:DIR`` repeats, turn by turn, the replies of a policy in the episodes in ``DIR``. ``replies:FILE`` (JSON lines,
optionally .gz) has a ``reply`` to a ``task`` per line; several replies to one task have a ``sample`` number each, and
become its epochs in that order. Only tasks with replies are played."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import ChatReply
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.recording import RecordedEpisode, RecordedTurn, Recording
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Step, Task
from lemur_ray.host.json_files import read_json_lines
from lemur_ray.rollout.episode_record import env_reply
from lemur_ray.rollout.ledger import read_episodes

Turns = Mapping[str, Sequence[tuple[str, ...]]]
"""Task id -> samples, each a tuple of the replies by turn."""
_Source = tuple[Path, str, Callable[[Path], Recording[Any]]]
"""File of stored replies, name for the policy's label, reader of the file."""


def stored_policy(text: str, policy: str, benchmark: str) -> PolicySpec | None:
    """The policy for ``text``, the value of ``--policy``; None if it is neither ``ledger:DIR`` nor ``replies:FILE``.
    ``policy``: name of the one whose replies to take if a ledger has several. ``benchmark``: take its episodes if the
    ledger has any, else all. A file of replies is not read. Raises ValueError if nothing is there or a ledger has not
    exactly one policy to take; LedgerError or OSError if it cannot be read."""
    kind, _, target = text.partition(":")
    if kind not in _READERS or not target:
        return None
    expected, read = _READERS[kind]
    path = Path(target).expanduser().absolute()
    if not path.exists():
        raise ValueError(f"--policy {text}: nothing is at {path}; expected {expected}")
    file, name, stored = read(path, policy, benchmark)
    return PolicySpec(kind, str(file), label=f"{kind}:{name}", stored=stored)


def _file_of_replies(path: Path, policy: str, benchmark: str) -> _Source:
    return path, path.name, _replies_recording


def _ledger(path: Path, policy: str, benchmark: str) -> _Source:
    file = path / "episodes.jsonl" if path.is_dir() else path
    name, recipe = _one_run(read_episodes(file), file, policy, benchmark)
    return file, name, partial(_ledger_recording, name, recipe)


_READERS: Mapping[str, tuple[str, Callable[[Path, str, str], _Source]]] = {
    "ledger": ("the folder of an evaluation, or its episodes.jsonl", _ledger),
    "replies": ("a file of replies", _file_of_replies),
}
"""Kind of policy -> what its path must be, and function from path, policy and benchmark to the source of replies."""


def tasks_with_replies(spec: PolicySpec, tasks: Sequence[Task], epochs: int) -> list[Task]:
    """The tasks to which the policy has at least ``epochs`` stored replies; for any other kind of policy, all tasks.
    Prints to stderr which replies and tasks are left out. Raises ValueError if no task is left."""
    if spec.stored is None:
        return list(tasks)
    stored = spec.stored(Path(spec.target)).episodes
    counts = Counter(key.rpartition("|")[0] for key in stored)
    answered = [task for task in tasks if counts[task.id] >= epochs]
    if not answered and tasks:
        example = f"for example {next(iter(counts))!r}" if counts else "none at all"
        raise ValueError(
            f"{spec.target} holds {epochs} replies to none of the {len(tasks)} tasks; they are called, for example, "
            f"{tasks[0].id!r}, its replies are to {example}"
        )
    if len(answered) < len(tasks):
        _warn(f"{spec.target} holds {epochs} replies to {len(answered)} of {len(tasks)} tasks: only these are graded")
    if foreign := counts.keys() - {task.id for task in tasks}:
        _warn(f"{spec.target}: {len(foreign)} of its tasks are not asked about, for example {min(foreign)!r}")
    if (most := max(counts.values())) > epochs:
        _warn(f"{spec.target} holds up to {most} replies to a task: --epochs {most} grades them all")
    if cut := _stopped_early(stored, {task.id: task for task in answered}):
        _warn(
            f"{spec.target}: {len(cut)} replies go on behind a text at which their task ends a reply, for example "
            f"{cut[0][1]!r} in one to {cut[0][0]!r}, and are graded up to it; another --form may have no such end"
        )
    return answered


def _stopped_early(stored: Mapping[str, RecordedEpisode], tasks: Mapping[str, Task]) -> list[tuple[str, str]]:
    """(task id, stop string) of each single-turn reply that continues after a stop string of its task."""
    cut = []
    for key, episode in stored.items():
        task = tasks.get(key.rpartition("|")[0])
        if task is None or len(episode.turns) != 1:
            continue
        stops = [stop for stop in task.options.get("stop", ()) if episode.turns[0].reply.partition(stop)[2].strip()]
        cut += [(task.id, stops[0])] if stops else []
    return cut


def read_replies(path: Path) -> dict[str, list[str]]:
    """Read JSON lines (optionally .gz) with ``task``, ``reply`` and optionally ``sample`` (default 0): task id ->
    replies in order of ``sample``. Raises OSError; ValueError with file and line."""
    by_task: dict[str, dict[int, str]] = {}
    for number, value in read_json_lines(path):
        row = _row(value, f"{path}, line {number}")
        samples = by_task.setdefault(row["task"], {})
        sample = row.get("sample", 0)
        if sample in samples:
            raise ValueError(
                f"{path}, line {number}: a second reply to {row['task']!r} with sample {sample}; number them "
                'with "sample": 0, 1, ...'
            )
        samples[sample] = row["reply"]
    return {task: [samples[n] for n in sorted(samples)] for task, samples in by_task.items()}


def _row(row: Any, where: str) -> dict[str, Any]:
    sample = row.get("sample", 0) if isinstance(row, dict) else None
    if sample is None or not all(isinstance(row.get(name), str) for name in ("task", "reply")):
        raise ValueError(f'{where}: expected an object with the texts "task" and "reply"')
    if isinstance(sample, bool) or not isinstance(sample, int):
        raise ValueError(f'{where}: "sample" is {sample!r}: expected a whole number')
    return dict(row)


def _replies_recording(path: Path) -> Recording[RecordedEpisode]:
    every = {task: [(reply,) for reply in replies] for task, replies in read_replies(path).items()}
    return _recording(path.name, every)


def _ledger_recording(policy: str, recipe: str, path: Path) -> Recording[RecordedEpisode]:
    played: dict[str, dict[int, tuple[str, ...]]] = {}
    for episode in read_episodes(path):
        if (episode.key.policy, episode.key.recipe) == (policy, recipe) and episode.outcome.scored:
            replies = tuple(_stored_text(step, episode) for step in episode.trajectory.steps)
            played.setdefault(episode.key.task, {})[episode.key.epoch] = replies
    return _recording(path.parent.name, {task: [of[n] for n in sorted(of)] for task, of in played.items()})


def _stored_text(step: Step, episode: Episode) -> str:
    """The text that the environment got: with the calls of tools that were offered natively."""
    return env_reply(ChatReply(step.reply, tool_calls=step.tool_calls if episode.trajectory.tools else None))


def _recording(name: str, every: Turns) -> Recording[RecordedEpisode]:
    episodes = {
        f"{task}|{sample}": RecordedEpisode(task, "", tuple(RecordedTurn(reply) for reply in replies), False)
        for task, samples in every.items()
        for sample, replies in enumerate(samples)
    }
    return Recording(name, episodes, _task_and_epoch)


def _task_and_epoch(episode: str) -> str:
    key = EpisodeKey.from_text(episode)
    return f"{key.task}|{key.epoch}"


def _one_run(episodes: Sequence[Episode], ledger: Path, policy: str, benchmark: str) -> tuple[str, str]:
    """(policy, recipe hash) of the one run in a ledger. Raises ValueError unless there is exactly one to choose."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    scored = [episode for episode in scored if episode.key.benchmark == benchmark] or scored
    runs = sorted({(e.key.policy, e.key.recipe) for e in scored if not policy or e.key.policy == policy})
    if len(runs) == 1:
        return runs[0]
    names = sorted({e.key.policy for e in scored})
    if len({name for name, _ in runs}) == 1:
        raise ValueError(f"{ledger}: {runs[0][0]} answered with {len(runs)} settings; grade a folder that holds one")
    raise ValueError(f"{ledger}: name one of its policies with --policy-model: {', '.join(names) or 'it holds none'}")


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
