"""Ledgers in, instruction data out: solved episodes that pass the rules and are solved again when said again.

Joins rollout and instruct, which do not know each other. Knows no benchmark.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.instruct.conversation import conversation_lines
from lemur_ray.instruct.solved import SolvedFilter, conversation_of, select
from lemur_ray.rollout.again import play_again
from lemur_ray.rollout.evaluation import EvalConfig, EvaluationError, recalled, replace_file
from lemur_ray.rollout.ledger import read_episodes

LoadTasks = Callable[[EvalConfig, Any], list[Task]]
HELD_OUT = "held_out_task"


@dataclass(frozen=True)
class HowToExport:
    """What is exported, and how it is proven."""

    held_out: bool = False
    """Also export tasks that are there to measure with. A model trained on them must not be scored on them."""
    replay: bool = True
    """Say every episode again in its environment and keep those that are solved again."""
    in_flight: int = 16
    """Episodes said again at the same time."""


def export(
    folders: Sequence[Path], out: Path, rules: SolvedFilter, how: HowToExport, load_tasks: LoadTasks
) -> dict[str, Any]:
    """Write the conversations of solved episodes to ``out`` and what was kept and left out to ``<out>.json``.

    ``folders``: each with an episodes.jsonl. ``load_tasks``: the tasks of an evaluation from its configuration and
    prompt. Returns the counts. Raises EvaluationError where there is nothing to read, LedgerError, ValueError.
    """
    if not folders:
        raise EvaluationError("no episodes found under LEMUR_HOME/episodes: run jobs/agent_eval.py, or pass --episodes")
    read: list[Episode] = []
    tasks: dict[str, dict[str, Task]] = defaultdict(dict)
    for folder in folders:
        ledger = folder / "episodes.jsonl"
        if not ledger.is_file():
            raise EvaluationError(f"{folder} has no episodes.jsonl: give the folder that jobs/agent_eval.py wrote to")
        read += read_episodes(ledger)
        for recipe, evaluation in recalled(folder).items():
            for config in evaluation["configs"]:
                found = load_tasks(EvalConfig(**config), evaluation["settings"]["prompt"])
                tasks[recipe].update({task.id: task for task in found})
    chosen = select(read, rules)
    dropped, kept = chosen.dropped, []
    for episode in chosen.episodes:
        task = tasks.get(episode.key.recipe, {}).get(episode.key.task)
        if task is None:
            dropped["settings_unknown"] += 1
        elif task.options.get("split") != "train" and not how.held_out:
            dropped[HELD_OUT] += 1
        else:
            kept.append((episode, task))
    if how.replay:
        again = play_again(kept, how.in_flight)
        solved = [(episode, task) for episode, task in kept if again[episode.key] is Outcome.SOLVED]
        dropped["not_solved_again"] += len(kept) - len(solved)
        kept = solved
    replace_file(out, "".join(conversation_lines(conversation_of(episode) for episode, _ in kept)))
    by = Counter(f"{e.key.benchmark} {e.key.policy}" for e, _ in kept)
    counts = {"read": len(read), "kept": len(kept), "dropped": dict(sorted((+dropped).items())), "kept_by": dict(by)}
    counts |= {"replayed": how.replay, "held_out": how.held_out}
    replace_file(out.with_name(out.name + ".json"), json.dumps(counts, indent=1) + "\n")
    return counts
