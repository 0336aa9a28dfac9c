"""A robot function written over several turns: after an exception the model gets its traceback, and undefined functions
that its code calls are requested one by one.

The model never learns what its function returns, and a wrong result ends the episode."""

import ast
import builtins
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from envs.programs.robocodegen.results import source_in, verdict_on
from envs.question.env import QuestionEnv
from envs.text_env import Opening, Turn, check_whole_number
from lemur_ray.host.python_source import parsed

MOST_FUNCTIONS = 8
"""Maximum number of undefined functions that the model is asked for in one attempt."""


class RobotCodeEnv(QuestionEnv):
    """RoboCodeGen over several turns. Options besides those of ``QuestionEnv``:

    - ``tries``: how often the function may be run, 1 or more;
    - ``recursion``: ask for functions that are called and not defined."""

    option_names: ClassVar[frozenset[str]] = QuestionEnv.option_names | {"tries", "recursion"}
    default_max_steps: ClassVar[int] = 1 + MOST_FUNCTIONS

    def begin(self, options: Mapping[str, Any]) -> Opening:
        tries = options.get("tries", 1)
        check_whole_number("tries", tries)
        self._tries_left = tries
        self._recursive = bool(options.get("recursion", False))
        self._sources: list[str] = []
        self._wanted: list[str] = []
        return super().begin(options)

    def respond(self, reply: str) -> Turn:
        asked = self._options["reference"]
        if not self._wanted:
            self._sources = []
        self._sources.append(source_in(reply, self._wanted[-1] if self._wanted else asked["name"]))
        source = "\n\n".join(self._sources)
        call = undefined_call(source, asked["helpers"]) if self._recursive else None
        if call and len(self._wanted) < MOST_FUNCTIONS and call[0] not in self._wanted:
            self._wanted.append(call[0])
            return Turn(f"# define function: {call[1]}.", self._sources[-1], valid=True)
        self._wanted = []
        self._tries_left -= 1
        verdict = verdict_on(source, self._options)
        ended = verdict.score >= 1 or not verdict.traceback or self._tries_left == 0
        return Turn(
            f"{verdict.note or 'The function passes.'} Score: {verdict.score:g}" if ended else verdict.traceback,
            source,
            valid=True,
            solved=verdict.score >= 1,
            finished=ended,
            score=verdict.score,
        )


def undefined_call(source: str, helpers: str) -> tuple[str, str] | None:
    """(name, calling statement as one line) of the first call of an undefined function. None if all are defined, or the
    source cannot be parsed. ``helpers`` is the source of available functions."""
    try:
        tree, known = parsed(source), parsed(helpers)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = _bound_names(tree) | _bound_names(known) | _built_in_names()
    calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)]
    unknown = [(call.func.id, call) for call in calls if isinstance(call.func, ast.Name) and call.func.id not in names]
    if not unknown:
        return None
    name, call = min(unknown, key=lambda one: (one[1].lineno, one[1].col_offset))
    assigned = [one for one in ast.walk(tree) if isinstance(one, ast.Assign) and one.value is call]
    return name, ast.unparse(assigned[0]) if assigned else f"ret_val = {ast.unparse(call)}"


def _bound_names(tree: ast.AST) -> set[str]:
    """Every name that is bound anywhere in the tree."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


@cache
def _built_in_names() -> frozenset[str]:
    import shapely.affinity
    import shapely.geometry

    shapes = (name for module in (shapely.geometry, shapely.affinity) for name in dir(module))
    return frozenset({*dir(builtins), *shapes, "np", "numpy", "get_obj_outer_pts_np"})
