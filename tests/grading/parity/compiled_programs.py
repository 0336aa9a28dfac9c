"""MultiPL-E beside its evaluators, and DS-1000 beside its authors' script: the same programs, run by both."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from envs.programs.ds1000.program import solution_of
from envs.programs.multipl_e.program import program_of
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.question import Graded
from lemur_ray.benchmarks.rows import read_rows
from tests.envs.programs.failing_programs import BODIES as FAILING
from tests.envs.programs.translated_solutions import BODIES, completion, ended
from tests.envs.questions import tasks_of
from tests.grading.parity.causes import COMPILED
from tests.grading.parity.compare import Difference, Reply, ask_peer, differences

RECORDED = ("js", "sh", "php", "java")
CHANGES = (
    (r" \+ ", " - "),
    (r" < ", " <= "),
    (r"\btrue\b", "false"),
    (r"\b0\b", "1"),
    (r"\breturn ", "return 1; return "),
)
"""Patterns and what replaces their first match in a program that passes."""
HARMLESS = ("no program", "another result", "an exception")
"""Names of failing programs that may run without limits."""
ATTACKS = Path(__file__).parents[2] / "envs/programs/undeserved.yaml"
"""Replies that attack what judges them."""


def program_replies(language: str, data: Path, every: int) -> tuple[list[Reply], dict[str, Task]]:
    """Replies to MultiPL-E's prompts of a language: recorded programs (one of ``every``) with changes to every third of
    those that pass, right and failing bodies, and attacks. With the tasks by name."""
    tasks = {task.id.rpartition("/")[2]: task for task in tasks_of(f"multipl_e/{language}", data)}
    made: list[tuple[str, str, str]] = []
    if language in RECORDED:
        rows = list(read_rows(data / f"bench/multipl_e/samples_qwen2.5-coder-1.5b_{language}.jsonl.gz"))
        for number, row in enumerate([row for row in rows if row["task_id"] in tasks][::every]):
            made.append(("recorded", row["task_id"], row["program"]))
            tests = tasks[row["task_id"]].options["reference"]["tests"].strip()
            above, _, below = row["program"].partition(tests)
            pattern, put = CHANGES[number % len(CHANGES)]
            changed = re.sub(pattern, put, above, count=1)
            if row["passed"] and number % 3 == 0 and changed != above:
                made.append((f"change {number % len(CHANGES)}", row["task_id"], changed + tests + below))
    made += [("gold", name, completion(language, name)) for name in BODIES[language]]
    add = "HumanEval_53_add"
    made += [
        (f"failing, {kind}", add, ended(language, FAILING[language][kind]))
        for kind in HARMLESS
        if kind in FAILING[language]
    ]
    table = yaml.safe_load(ATTACKS.read_text(encoding="utf-8"))[language]
    made += [(f"hostile, {kind}", add, text) for kind, text in table["attacks"].items()]
    made += [("hostile twin", add, table["right"]), ("nothing", add, "")]
    return [Reply(kind, name, text, {"language": language}) for kind, name, text in made], tasks


def survived(python: str, asked: Sequence[Mapping[str, str]], evaluators: Path) -> list[bool | str]:
    """The peer's verdicts, also if a program ends the peer's own process."""
    try:
        verdicts: list[bool | str] = ask_peer(python, "multipl_e_peer.py", asked, str(evaluators), boxed=True)
        return verdicts
    except RuntimeError:
        if len(asked) == 1:
            return ["the program ends the evaluator's process"]
        half = len(asked) // 2
        return [*survived(python, asked[:half], evaluators), *survived(python, asked[half:], evaluators)]


def verdicts_on(
    python: str, evaluators: Path, tasks: Mapping[str, Task], language: str, replies: Sequence[Reply]
) -> list[bool | str]:
    """The peer's verdicts on replies, as ``survived``. With other answers every number of the tests is one more, of
    which a sum of two is not the sum."""
    asked = []
    for reply in replies:
        reference = tasks[reply.item].options["reference"]
        if "other answers" in reply.more:
            tests = re.sub(r"(?<!\w)\d+", lambda number: str(int(number[0]) + 1), reference["tests"])
            reference = {**reference, "tests": tests}
        asked.append({"language": language, "program": program_of(reply.text, reference)})
    return survived(python, asked, evaluators)


def graded(reply: Reply, task: Task) -> Graded:
    """This project's grade of a reply to a task."""
    module, _, name = task.options["grade"].partition(":")
    grade: Callable[[str, Mapping[str, Any]], Graded] = getattr(importlib.import_module(module), name)
    return grade(reply.text, task.options)


def beside_multipl_e(
    python: str, evaluators: Path, data: Path, every: Mapping[str, int]
) -> Iterator[tuple[str, list[Reply], list[Difference]]]:
    """Yield (comparison, replies, differences) for each language in ``every``, which says of how many recorded programs
    one is taken. ``evaluators``: folder with the package ``multiple_metrics``. Both run the program that this project
    reads from a reply."""
    for language, one_of in every.items():
        replies, tasks = program_replies(language, data, one_of)
        published = partial(verdicts_on, python, evaluators, tasks, language)
        mine = [graded(reply, tasks[reply.item]).score == 1 for reply in replies]
        name, theirs = f"multipl_e {language}", published(replies)
        yield name, replies, differences(name, replies, mine, theirs, COMPILED, published=published)


def beside_ds1000(
    python: str, folder: Path, environment: str, answers: Mapping[str, Path], every: int
) -> Iterator[tuple[str, list[Reply], list[Difference]]]:
    """Yield (comparison, replies, differences) with DS-1000's authors' script. ``python``: any;
    ``folder``: has ``execution.py`` and ``ds1000/ds1000.jsonl.gz``; ``environment``: folder of the libraries;
    ``answers``: recorded answers by model, as JSON lines; ``every``: takes one problem of so many."""
    chosen = "Pandas,Numpy,Scipy,Sklearn,Matplotlib"
    tasks = tasks_of("ds1000", folder, environment=environment, libraries=chosen)
    codes = {model: [row["code"] for row in map(json.loads, path.open())] for model, path in answers.items()}
    recorded = {
        model: [code[0] if isinstance(code, list) else code for code in every_code]
        for model, every_code in codes.items()
    }
    replies, of_reply = [], []
    for task in tasks[::every]:
        number = int(task.id.rpartition("/")[2])
        gold = task.options["gold"]
        made = {"gold": gold, "nothing": "", "leaves": "import sys\nsys.exit(0)"}
        made |= {f"recorded, {model}": texts[number] for model, texts in recorded.items()}
        for place, (pattern, put) in enumerate(((r"\b0\b", "1"), (r" \+ ", " - "), (r"\bTrue\b", "False"))):
            changed = re.sub(pattern, put, gold, count=1)
            if changed != gold:
                made[f"change {place}"] = changed
        replies += [Reply(kind, task.id, text) for kind, text in made.items()]
        of_reply += [task] * len(made)
    asked = [
        {"code_context": task.options["reference"]["code_context"], "text": solution_of(reply.text)}
        for reply, task in zip(replies, of_reply, strict=True)
    ]
    theirs = ask_peer(python, "ds1000_peer.py", asked, str(folder), environment, boxed=True)
    mine = [graded(reply, task).score == 1 for reply, task in zip(replies, of_reply, strict=True)]
    yield "ds1000", replies, differences("ds1000", replies, mine, theirs, COMPILED)
