"""Export of solved episodes as instruction data: filtered by rules and confirmed by a replay of their replies."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.recording import NOT_EXECUTED
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.benchmarks.contract import options_to_repeat
from lemur_ray.benchmarks.discovery import find
from lemur_ray.instruct.conversation import conversation_lines
from lemur_ray.instruct.solved import SolvedFilter, conversations_of, select
from lemur_ray.rollout.benchmark_tasks import from_json, tasks_of
from lemur_ray.rollout.evaluation_folder import EvaluationError, load_settings, replace_file
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.rollout.runner import replay_episodes

# Reasons for leaving an episode out, as they stand in the counts.
HELD_OUT = "held_out_task"
REPLAYED = "replay_of_a_recording"
NOT_RUN = "not_executed"
NO_SERVER = "sql_server_unknown"


@dataclass(frozen=True)
class HowToExport:
    """Options of the export: whether held-out tasks are included, and whether and how a replay confirms episodes."""

    held_out: bool = False
    """Also export episodes of tasks that are not in the split train. A model trained on them must not be scored on
    them."""
    replay: bool = True
    """Replay every episode in its environment and export only those that are solved again."""
    in_flight: int = 16
    """Maximum number of episodes replayed at the same time."""
    engine: str = ""
    """mysql:URL, for evaluations that used such a server, whose URL is not stored. The field has the name of the
    benchmark's option that it replaces."""


@dataclass
class _StoredRuns:
    """Episodes of several evaluation folders, and the tasks that they were played on."""

    episodes: list[Episode] = field(default_factory=list)
    tasks: dict[str, dict[str, Task]] = field(default_factory=lambda: defaultdict(dict))
    """Tasks by recipe hash, then by task id."""
    replay_task: dict[str, Callable[[Task, Episode], Task]] = field(default_factory=dict)
    """Recipe hash -> the benchmark's function that adapts a task for the replay of a stored episode."""
    without_server: set[str] = field(default_factory=set)
    """Recipe hashes whose tasks need an option that is not stored, such as a URL with a password."""
    warnings: list[str] = field(default_factory=list)

    def read(self, folder: Path, how: HowToExport) -> None:
        """Add a folder's episodes, and the tasks of its evaluations except replays. Raises EvaluationError."""
        ledger = folder / "episodes.jsonl"
        if not ledger.is_file():
            raise EvaluationError(f"{folder} has no episodes.jsonl: give the folder that jobs/agent_eval.py wrote to")
        self.episodes += read_episodes(ledger)
        for recipe, evaluation in load_settings(folder).items():
            for config in evaluation["configs"]:
                if not config["policy"].startswith("replay:"):
                    self._add_tasks(folder, recipe, config, evaluation["settings"]["prompt"], how)

    def _add_tasks(self, folder: Path, recipe: str, stored: Any, prompt: Any, how: HowToExport) -> None:
        config = from_json(stored)
        needed = options_to_repeat(config.options)
        given = {name: value for name in needed if (value := getattr(how, name, ""))}
        if len(given) < len(needed):
            self.without_server.add(recipe)
            self.warnings.append(_missing_options(folder, needed))
            return
        config = replace(config, options=replace(config.options, **given))
        self.tasks[recipe].update({task.id: task for task in tasks_of(config, prompt)})
        self.replay_task[recipe] = find(config.benchmark).details.restored_task

    def task_of(self, episode: Episode, how: HowToExport) -> tuple[Task | None, str]:
        """(the task for a replay of the episode, "") or (None, the reason for leaving the episode out)."""
        recipe = episode.key.recipe
        task = self.tasks.get(recipe, {}).get(episode.key.task)
        if task is None:
            return None, NO_SERVER if recipe in self.without_server else "settings_unknown"
        if task.options.get("split") != "train" and not how.held_out:
            return None, HELD_OUT
        return self.replay_task[recipe](task, episode), ""


def export(folders: Sequence[Path], out: Path, rules: SolvedFilter, how: HowToExport) -> dict[str, Any]:
    """Write the conversations of solved episodes to ``out``, and the counts of exported and dropped ones to
    ``<out>.json``. Each example is exactly the text of the model's requests: a whole conversation, or every turn by
    itself if requests had no earlier turns. Left out are replays of recordings, and episodes with a placeholder for
    code that was not executed, as no model got these observations. ``folders``: each with an episodes.jsonl. ``rules``:
    which episodes are exported; ``how``: with or without a replay. Returns the counts, with a list of warnings for the
    user. Raises EvaluationError if there is nothing to read, LedgerError for an invalid ledger, ValueError if an
    evaluation's tasks cannot be loaded."""
    if not folders:
        raise EvaluationError("no episodes found under LEMUR_HOME/episodes: run jobs/agent_eval.py, or pass --episodes")
    stored = _StoredRuns()
    for folder in folders:
        stored.read(folder, how)
    unfit = Counter(reason for episode in stored.episodes if (reason := _unfit(episode)))
    chosen = select((episode for episode in stored.episodes if not _unfit(episode)), rules)
    dropped = chosen.dropped + unfit
    kept: list[tuple[Episode, Task]] = []
    for episode in chosen.episodes:
        task, reason = stored.task_of(episode, how)
        if task is None:
            dropped[reason] += 1
        else:
            kept.append((episode, task))
    if how.replay:
        outcomes = replay_episodes(kept, how.in_flight)
        solved = [(episode, task) for episode, task in kept if outcomes[episode.key] is Outcome.SOLVED]
        dropped["not_solved_again"] += len(kept) - len(solved)
        kept = solved
    examples = [example for episode, _ in kept for example in conversations_of(episode)]
    replace_file(out, "".join(conversation_lines(examples)))
    if not kept:
        stored.warnings.append("nothing was left to export; what was dropped, and why, stands in the counts")
    counts = {
        "read": len(stored.episodes),
        "kept": len(kept),
        "dropped": dict(sorted((+dropped).items())),
        "kept_by": dict(Counter(f"{e.key.benchmark} {e.key.policy}" for e, _ in kept)),
        "examples": len(examples),
        "replayed": how.replay,
        "held_out": how.held_out,
        "said": list(dict.fromkeys(stored.warnings)),
    }
    replace_file(out.with_name(out.name + ".json"), json.dumps(counts, indent=1) + "\n")
    return counts


def _unfit(episode: Episode) -> str:
    """Reason to leave an episode out whatever its score: a replay, or code that was not executed; empty: none."""
    if episode.key.policy.startswith("replay:"):
        return REPLAYED
    if any(NOT_EXECUTED in step.observation for step in episode.trajectory.steps):
        return NOT_RUN
    return ""


def _missing_options(folder: Path, options: Mapping[str, str]) -> str:
    flags = " ".join(f"--{name.replace('_', '-')} {form}" for name, form in options.items())
    return (
        f"{folder}: played with {flags}, of which not all is kept, since there may be a password in it; its tasks "
        f"cannot be built again without it: give {flags} to export them"
    )
