"""Ledgers in, instruction data out: solved episodes that pass the rules and are solved again when said again.

Joins rollout and instruct, which do not know each other. Knows no benchmark.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.recording import NOT_EXECUTED
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.benchmarks.contract import options_to_repeat
from lemur_ray.benchmarks.discovery import find
from lemur_ray.instruct.conversation import conversation_lines
from lemur_ray.instruct.solved import SolvedFilter, conversations_of, select
from lemur_ray.rollout.benchmark_tasks import from_json, tasks_of
from lemur_ray.rollout.evaluation_folder import EvaluationError, recalled, replace_file
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.rollout.replay_episodes import replay_episodes

HELD_OUT = "held_out_task"
REPLAYED = "replay_of_a_recording"
NOT_RUN = "not_executed"
NO_SERVER = "sql_server_unknown"


@dataclass(frozen=True)
class HowToExport:
    """What is exported, and how it is proven."""

    held_out: bool = False
    """Also export tasks that are there to measure with. A model trained on them must not be scored on them."""
    replay: bool = True
    """Say every episode again in its environment and keep those that are solved again."""
    in_flight: int = 16
    """Episodes said again at the same time."""
    engine: str = ""
    """mysql:URL, for evaluations that were made with one: what is kept of them does not hold the URL. As every option
    of a benchmark that has to be said again, it has the name that it has there."""


def export(folders: Sequence[Path], out: Path, rules: SolvedFilter, how: HowToExport) -> dict[str, Any]:
    """Write the conversations of solved episodes to ``out`` and what was kept and left out to ``<out>.json``.

    Each example is exactly what a model was shown: a whole conversation, or every turn by itself where its past was not
    shown to it.

    Replays of recordings are left out, and so is every episode in which an observation stands for code that was not
    run: what is written there is not what an environment told a model in this format.

    ``folders``: each with an episodes.jsonl. Returns the counts; ``said`` holds what a reader should do something
    about. Raises EvaluationError where there is nothing to read, LedgerError, ValueError.
    """
    if not folders:
        raise EvaluationError("no episodes found under LEMUR_HOME/episodes: run jobs/agent_eval.py, or pass --episodes")
    read: list[Episode] = []
    said: list[str] = []
    without_server: set[str] = set()
    tasks: dict[str, dict[str, Task]] = defaultdict(dict)
    said_again: dict[str, Callable[[Task, Episode], Task]] = {}
    for folder in folders:
        ledger = folder / "episodes.jsonl"
        if not ledger.is_file():
            raise EvaluationError(f"{folder} has no episodes.jsonl: give the folder that jobs/agent_eval.py wrote to")
        read += read_episodes(ledger)
        for recipe, evaluation in recalled(folder).items():
            for config in evaluation["configs"]:
                if config["policy"].startswith("replay:"):
                    continue
                asked = from_json(config)
                unsaid = options_to_repeat(asked.options)
                given = {name: value for name in unsaid if (value := getattr(how, name, ""))}
                if len(given) < len(unsaid):
                    without_server.add(recipe)
                    said.append(_unsaid(folder, unsaid))
                    continue
                asked = replace(asked, options=replace(asked.options, **given))
                found = tasks_of(asked, evaluation["settings"]["prompt"])
                tasks[recipe].update({task.id: task for task in found})
                said_again[recipe] = find(asked.benchmark).said_again
    unfit = Counter(reason for episode in read if (reason := _unfit(episode)))
    chosen = select((episode for episode in read if not _unfit(episode)), rules)
    dropped, kept = chosen.dropped + unfit, []
    for episode in chosen.episodes:
        task = tasks.get(episode.key.recipe, {}).get(episode.key.task)
        if task is None:
            dropped[NO_SERVER if episode.key.recipe in without_server else "settings_unknown"] += 1
        elif task.options.get("split") != "train" and not how.held_out:
            dropped[HELD_OUT] += 1
        else:
            kept.append((episode, said_again[episode.key.recipe](task, episode)))
    if how.replay:
        again = replay_episodes(kept, how.in_flight)
        solved = [(episode, task) for episode, task in kept if again[episode.key] is Outcome.SOLVED]
        dropped["not_solved_again"] += len(kept) - len(solved)
        kept = solved
    examples = [example for episode, _ in kept for example in conversations_of(episode)]
    replace_file(out, "".join(conversation_lines(examples)))
    by = Counter(f"{e.key.benchmark} {e.key.policy}" for e, _ in kept)
    counts = {"read": len(read), "kept": len(kept), "dropped": dict(sorted((+dropped).items())), "kept_by": dict(by)}
    counts["examples"] = len(examples)
    if not kept:
        said.append("nothing was left to export; what was dropped, and why, stands in the counts")
    counts |= {"replayed": how.replay, "held_out": how.held_out, "said": list(dict.fromkeys(said))}
    replace_file(out.with_name(out.name + ".json"), json.dumps(counts, indent=1) + "\n")
    return counts


def _unfit(episode: Episode) -> str:
    """Why an episode is no conversation between a model and an environment, whatever its score; empty if it is one."""
    if episode.key.policy.startswith("replay:"):
        return REPLAYED
    if any(NOT_EXECUTED in step.observation for step in episode.trajectory.steps):
        return NOT_RUN
    return ""


def _unsaid(folder: Path, unsaid: Mapping[str, str]) -> str:
    flags = " ".join(f"--{name.replace('_', '-')} {form}" for name, form in unsaid.items())
    return (
        f"{folder}: played with {flags}, of which not all is kept, since there may be a password in it; its tasks "
        f"cannot be built again without it: give {flags} to export them"
    )
