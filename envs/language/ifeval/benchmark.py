"""IFEval (Zhou et al. 2023, arXiv 2311.07911): prompts with instructions that a program checks: ``ifeval``.

Data: ``ifeval/input_data.jsonl`` of ``google/IFEval``. A task is solved if every instruction is followed (prompt-level
strict). Rules are the published ones but for two: sentences and words in capitals are counted without NLTK's models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.language.ifeval.rules import RULES, detector
from envs.outside_data import SETS
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads, requirement_of
from lemur_ray.benchmarks.question import STRICT, Graded, QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows

SOURCES = SETS["ifeval"]
_NAMES = ("ifeval/input_data.jsonl", "ifeval/ifeval_input_data.jsonl")
_HELP = "IFEval: google/IFEval on the Hub; Apache-2.0; python jobs/fetch_data.py ifeval"
LOOSE, SHARE = "loose", "instructions_strict"
"""Names of the lenient reading, and of the share of a prompt's instructions that are followed."""


@dataclass(frozen=True)
class IfevalOptions:
    """Command-line options of IFEval: it has none."""


def _load(options: IfevalOptions, request: EvaluationRequest) -> Iterator[Task]:
    path = find_file(request.data_folder("what IFEval asks"), _NAMES, _HELP)
    digest = files_digest(path)
    for row in read_rows(path, ("key", "prompt", "instruction_id_list", "kwargs")):
        ids = row["instruction_id_list"]
        if unknown := [one for one in ids if one not in RULES]:
            raise ValueError(f"{path}, key {row['key']}: unknown instruction {unknown[0]!r}")
        given = [{key: value for key, value in one.items() if value} for one in row["kwargs"]]
        reference = [[one, arguments] for one, arguments in zip(ids, given, strict=True)]
        name, category, details = f"ifeval/{row['key']}", f"{len(ids)} instructions", QuestionDetails(data=digest)
        yield question("ifeval", name, category, row["prompt"], f"{__name__}:grade", reference, details)


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if all instructions are followed, else 0. ``scores`` has the loose rule's score and the share
    followed."""
    strict = [_follows([reply], *one) for one in options["reference"]]
    loose = [_follows(_variants(reply), *one) for one in options["reference"]]
    failed = [name for (name, _), followed in zip(options["reference"], strict, strict=True) if not followed]
    scores = {STRICT: float(all(strict)), LOOSE: float(all(loose)), SHARE: sum(strict) / len(strict)}
    return Graded(float(all(strict)), reply[:200], f"not followed: {', '.join(failed)}" if failed else "", scores)


def _variants(reply: str) -> list[str]:
    """The reply without its first line, its last, or both, each with and without asterisks."""
    lines = reply.split("\n")
    cut = [reply, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cut, *(text.replace("*", "") for text in cut)]


def _follows(texts: Sequence[str], name: str, arguments: Mapping[str, Any]) -> bool:
    return any(text.strip() and RULES[name](text, arguments) for text in texts)


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """For reports: ``instruction_level_strict``, share of all instructions that were followed, and
    ``prompt_level_loose``, share of prompts solved by the loose rule; {} if no episode is scored."""
    scored = [episode for episode in episodes if SHARE in episode.scores]
    counts = [int(episode.category.split()[0]) for episode in scored]
    if not scored:
        return {}
    followed = sum(episode.scores[SHARE] * count for episode, count in zip(scored, counts, strict=True))
    loose = sum(episode.scores[LOOSE] for episode in scored) / len(scored)
    return {"instruction_level_strict": followed / sum(counts), "prompt_level_loose": loose}


_DATA = first_task_loads(_load)
BENCHMARKS = {
    "": Benchmark(
        IfevalOptions, _load, {"full": 1280, "brief": 1280}, sources=SOURCES,
        needs=lambda options, request: [*_DATA(options, request), requirement_of("langdetect", detector)],
        details=BenchmarkDetails("541", notes=summary, file_patterns=_NAMES, protocol=published_protocol("ifeval")),
    )
}  # fmt: skip
