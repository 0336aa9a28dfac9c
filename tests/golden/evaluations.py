"""Evaluations of the present code: what they plan, what they write down, the report of them."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.golden.present import GOLDEN, Json, digest, job, replaced, surroundings

THAT_HOUR = "2026112214"
"""When the golden files were written: a file tree of InterCode-Bash lies in a folder named after its hour."""

EVALUATIONS = {
    "alfworld/text": ("alfworld/text", "expert"),
    "alfworld/text, brief": ("alfworld/text", "random --prompt brief --split train --limit 20 --epochs 2 --seed 5"),
    "alfworld/text, unseen goals": ("alfworld/text", "expert --split novel_object --temperature 0.7 --max-tokens 64"),
    "intercode/sql on its sample": ("intercode/sql", "expert"),
    "intercode/sql on its sample, with hints": ("intercode/sql", "random --handicap --reward tau --prompt brief"),
    "intercode/sql": ("intercode/sql", "expert --data DATA"),
    "intercode/sql, as upstream": ("intercode/sql", "expert --data DATA --compat --limit 30 --sample first"),
    "intercode/sql, recorded": (
        "intercode/sql", "replay:DATA/intercode/logs/sql/vicuna/ic_sql_multiturn_vicuna_10_turns.json.gz --data DATA",
    ),
    "intercode/bash": ("intercode/bash", "expert --data DATA"),
    "intercode/bash, as upstream": ("intercode/bash", "random --data DATA --compat --sandbox docker"),
    "intercode/bash, recorded": (
        "intercode/bash",
        "replay:DATA/intercode/logs/bash/vicuna/ic_bash_multiturn_vicuna_10_turns_fs_1.json.gz --data DATA",
    ),
    "intercode/ctf": ("intercode/ctf", "expert --data DATA"),
    "intercode/python": ("intercode/python", "expert --data DATA"),
    "intercode/python, recorded": (
        "intercode/python",
        "replay:DATA/intercode/logs/python/gpt-3.5/ic_python_multiturn_gpt-3.5_7_turns.json.gz --data DATA",
    ),
    **{
        f"mint/{subset}": (f"mint/{subset}", "human --data DATA")
        for subset in ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu", "humaneval", "mbpp", "alfworld")
    },
    "mint/theoremqa, as in 2023": (
        "mint/theoremqa", "human --data DATA --grader mint-2023 --option-rule head --parser lenient",
    ),
    "mint/math, recorded": (
        "mint/math", "replay:DATA/mint/outputs/Llama-2-70b-chat-hf/F=None/math.results.jsonl.gz --data DATA",
    ),
    "mint/math, recorded with feedback": (
        "mint/math", "replay:DATA/mint/outputs/Llama-2-70b-chat-hf/F=gpt-4-0613/math.results.jsonl.gz --data DATA",
    ),
}  # fmt: skip
"""What is asked -> benchmark, and policy with flags. DATA is the folder of outside data; a person plays what has
neither expert nor actions to draw, so that no endpoint is asked."""


class Planned(BaseException):
    """All episodes of an evaluation, instead of their being played."""


def needs_data(name: str) -> bool:
    return "DATA" in EVALUATIONS[name][1]


def planned(name: str, home: Path, data: Path | None) -> Json:
    """Identity of an evaluation: hash and settings, keys of its first and last episodes, a digest of every task."""
    benchmark, flags = EVALUATIONS[name]
    out = f"planned/{digest(name)}"
    argv = f"--benchmark {benchmark} --actors 0 --out {out} --policy {flags}".split()

    def stop(plan: Sequence[Any], *_: Any, **__: Any) -> None:
        raise Planned(plan)

    told = io.StringIO()
    with surroundings(home), replaced("run_episodes", stop), replaced("missing_requirements", lambda needs: []):
        keep_sample(home)
        try:
            with contextlib.redirect_stderr(told):
                code, said = job("agent_eval", *(word.replace("DATA", str(data)) for word in argv))
        except Planned as seen:
            orders = list(seen.args[0])
        else:
            raise AssertionError(f"{name}: exit code {code}\n{said}{told.getvalue()}")
    known = json.loads((home / out / "evaluations.json").read_text())
    ((recipe, about),) = known.items()
    keys = [str(order.key) for order in orders]
    assert {order.key.recipe for order in orders} == {recipe}

    def plain(value: Json) -> str:
        text = re.sub(r"(?<=/)20\d{8}(?=/)", THAT_HOUR, json.dumps(value, sort_keys=True, default=str))
        return text.replace(str(data), "DATA").replace(str(home), "HOME") if data else text.replace(str(home), "HOME")

    fields = [dataclasses.asdict(order.task) for order in orders]
    later = ("cluster", "after", "lanes")
    tasks = [{k: v for k, v in task.items() if k not in later or v} for task in fields]
    return {
        "recipe": recipe,
        "settings": about["settings"],
        "n": len(keys),
        "first": keys[:5],
        "last": keys[-1],
        "keys": digest(keys),
        "categories": digest([task["category"] for task in tasks]),
        "env_ids": sorted({task["env_id"] for task in tasks}),
        "options": sorted({option for task in tasks for option in task["options"]}),
        "tasks": digest([plain(task) for task in tasks]),
        "sampling": digest([plain(dataclasses.asdict(order.sampling)) for order in orders]),
    }


# The ledger


LEDGERS = {
    "alfworld-text-expert": "--benchmark alfworld/text --policy expert --limit 12 --sample first",
    "alfworld-text-random": "--benchmark alfworld/text --policy random --limit 12 --sample first",
    "intercode-sql-expert": "--benchmark intercode/sql --policy expert --limit 8 --sample first",
    "intercode-sql-random": "--benchmark intercode/sql --policy random --limit 8 --sample first --epochs 2",
}
"""Folder under episodes/ -> the command that fills it. When the golden files were written, a limit left the first."""
ONE_BY_ONE = "--actors 0 --in-flight 1"
TIMES = ("wall_s", "policy_s", "env_s")


def keep_sample(home: Path) -> None:
    """The stored sample database in place of one made of this machine's packages; unpacked once."""
    path = home / "intercode" / "sample.sqlite"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.decompress((GOLDEN / "ledger" / "sample.sqlite.gz").read_bytes()))


def play(folder: str, home: Path) -> tuple[Json, str]:
    """The command of a ledger in a home of its own: the JSON of its last line without paths, and stderr."""
    told = io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    with surroundings(home), contextlib.redirect_stderr(told):
        keep_sample(home)
        code, said = job("agent_eval", *LEDGERS[folder].split(), *ONE_BY_ONE.split())
    assert signal.getsignal(signal.SIGTERM) == before
    assert code == 0, told.getvalue()
    return without(home, json.loads(said.splitlines()[-1])), told.getvalue()


def without(home: Path, value: Json) -> Json:
    """A JSON value without the home's path."""
    return json.loads(json.dumps(value).replace(str(home), "HOME"))


def episodes_of(path: Path) -> list[Json]:
    """Episodes of a ledger without the times they took, which are the machine's."""

    def timeless(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key not in TIMES}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    return [timeless(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def unpack_ledger(home: Path) -> None:
    """The stored evaluations under ``home``/episodes, as a user would have them."""
    for folder in LEDGERS:
        (home / "episodes" / folder).mkdir(parents=True)
        for stored in sorted((GOLDEN / "ledger" / folder).glob("*.gz")):
            (home / "episodes" / folder / stored.name.removesuffix(".gz")).write_bytes(
                gzip.decompress(stored.read_bytes())
            )


def report_of(home: Path) -> Json:
    """``report.json`` of everything under ``home``, without the day and the paths, and a digest of every other file."""
    with surroundings(home), contextlib.redirect_stderr(io.StringIO()) as told:
        code, said = job("report")
    assert code == 0, said + told.getvalue()
    numbers = without(home, json.loads((home / "report" / "report.json").read_text(encoding="utf-8")))
    del numbers["written"]
    return {"report": numbers, "pages": pages_in(home / "report", home)}


def pages_in(folder: Path, home: Path) -> dict[str, str]:
    """Digest of every page and table in a folder, without days and paths."""
    pages = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".html", ".csv")):
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DAY", path.read_text(encoding="utf-8"))
        pages[path.relative_to(folder).as_posix()] = digest(text.replace(str(home), "HOME"))
    return pages
