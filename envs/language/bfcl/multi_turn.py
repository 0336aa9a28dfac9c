"""BFCL v4, the multi-turn categories: ``bfcl/multi_turn``. Data, documentation of the tools and their simulated APIs
are those of the installed package bfcl-eval; nothing of it is part of this project.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from envs.language.bfcl.categories import ChosenCategories
from envs.language.bfcl.multi_turn_env import STEPS
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.question import by_category
from lemur_ray.benchmarks.resource_request import COMMANDS
from lemur_ray.benchmarks.rows import files_digest
from lemur_ray.host.json_files import read_json_lines

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath==1.3.0"
"""Without --no-deps the package brings clients of a dozen services, PyTorch and an older NumPy, none of which is used
here."""
Offer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a function of the data to a tool in OpenAI's format"""


@dataclass(frozen=True)
class MultiTurnOptions(ChosenCategories):
    """Command-line options of BFCL's multi-turn benchmark: which of the categories ``EVERY`` are played."""

    EVERY: ClassVar[Sequence[str]] = CATEGORIES


def _package() -> Path:
    """Folder of the installed package. Raises ValueError with the command that installs it."""
    package = find_spec("bfcl_eval")
    if package is None or find_spec("mpmath") is None:
        raise ValueError(f"bfcl/multi_turn: its simulated APIs are those of the package bfcl-eval: {INSTALL}")
    return Path(next(iter(package.submodule_search_locations or ())))


def load(offer: Offer, options: MultiTurnOptions, request: EvaluationRequest) -> Iterator[Task]:
    """The tasks of the chosen categories, in the order of the data. offer: converts a function of the data to a tool in
    OpenAI's format."""
    data = _package() / "data"
    backend = import_module("bfcl_eval.constants.executable_backend_config")

    @cache
    def tools_of(name: str) -> list[Mapping[str, Any]]:
        file = data / "multi_turn_func_doc" / backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
        return [offer(function) for _, function in read_json_lines(file)]

    news = import_module("bfcl_eval.constants.default_prompts").DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
    for category in options.played:
        paths = [data / part / f"BFCL_v4_multi_turn_{category}.json" for part in ("", "possible_answer")]
        gold = {row["id"]: row["ground_truth"] for _, row in read_json_lines(paths[1])}
        digest = files_digest(*paths)
        for _, row in read_json_lines(paths[0]):
            names = row["involved_classes"]
            every = [tool for name in names for tool in tools_of(name)]
            tools, added = _held_out(every, row.get("missed_function", {}))
            task = {
                "apis": {
                    "classes": {name: backend.CLASS_FILE_PATH_MAPPING[name] for name in names},
                    "stateless": [name for name in names if name in backend.STATELESS_CLASSES],
                    "initial_config": row["initial_config"],
                    "long_context": category == "long_context",
                },
                "turns": [turn[0]["content"] if turn else "" for turn in row["question"]],
                "gold": gold[row["id"]],
                "tools": tools,
                "added": added,
                "news": news,
                "native": options.tools == "native",
                "database_id": digest,
                "max_steps": (turns := len(gold[row["id"]]) * (STEPS + 1)),
            }
            yield Task("bfcl/multi_turn", f"bfcl/{row['id']}", "envs:lemur/BFCL-v0", category, task, max_turns=turns)


def _held_out(
    tools: Sequence[Mapping[str, Any]], missed: Mapping[str, Sequence[str]]
) -> tuple[list[Mapping[str, Any]], dict[str, list[Mapping[str, Any]]]]:
    """(tools from the beginning, tools that are added with a turn, by its number)."""
    left, added = list(tools), dict[str, list[Mapping[str, Any]]]()
    for turn, names in missed.items():
        added[turn] = []
        for name in names:
            place = next(n for n, tool in enumerate(left) if tool["function"]["name"] == name)
            added[turn].append(left.pop(place))
    return left, added


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """For reports: category -> share solved of its scored episodes, and their mean ``multi_turn``, as the leaderboard
    counts it; {} if none is scored."""
    by = by_category(episodes)
    shares = {category: fmean(by[category]) for category in CATEGORIES if category in by}
    return {**shares, "multi_turn": fmean(shares.values())} if shares else {}


def multi_turn(offer: Offer) -> Benchmark[MultiTurnOptions]:
    """The benchmark. ``offer``: how a function of the data becomes a tool."""
    tasks = partial(load, offer)
    details = BenchmarkDetails("800, multi-turn", notes=summary, protocol=published_protocol("bfcl/multi_turn"))
    return Benchmark(
        MultiTurnOptions, tasks, {"full": 1024, "brief": 1024}, needs=first_task_loads(tasks, "package bfcl-eval"),
        resources=COMMANDS, min_step_s=60.0, has_hints=True, details=details,
    )  # fmt: skip
