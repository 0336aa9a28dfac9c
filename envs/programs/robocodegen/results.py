"""Compares the results of robot functions in this process, where no code of a model runs.

The function runs in a sandbox with numpy and shapely. Arguments and results are plain lists with the exact type of each
value (``called.py``). A result of any other type, an exception or a timeout fails the problem."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envs.programs.code_in_replies import code_in
from lemur_ray.benchmarks.question import Graded
from lemur_ray.sandbox.inside.payload.plain_values import NotPlain, decode, encode
from lemur_ray.sandbox.programs import Failure
from lemur_ray.sandbox.python_repl import own_packages
from lemur_ray.sandbox.sandbox import Limits, SandboxDestroyed, SandboxSpec
from lemur_ray.sandbox.solution_process import Answer, SolutionProcess
from lemur_ray.sandbox.untrusted_output import has_shape
from lemur_ray.sandbox.warm_pool import WarmPool, shared_pool

TIME_S = 10.0
"""Time limit of one call, in seconds."""
TOTAL_S = 30.0
"""Time limit of all calls of a problem and the start of Python, in seconds."""
CPU_S = 5.0
"""Seconds of processor time that are enough for all calls: a function that got less on a busy machine is not blamed."""
PATIENCE_S = 60.0
AREA = 1e-3
"""Maximum area by which a shape may differ, relative to the expected one."""
BANNED = ("import", "__")
_POINTS = 100
"""Maximum points of a self-intersecting shape; one with more fails, since its geometry can take hours."""
_MEMORY_BYTES = 2 * 2**30
_INCOMPARABLE = (NotPlain, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_CALLED = Path(__file__).with_name("called.py")


@dataclass(frozen=True)
class Verdict:
    """Verdict on a function. ``note``: the reason in a line; ``traceback``: of an exception, for the model."""

    score: float
    note: str = ""
    traceback: str = ""


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the function that a reply defines passes all tests in ``options["reference"]``; see ``verdict_on``."""
    source = source_in(reply, options["reference"]["name"])
    verdict = verdict_on(source, options)
    return Graded(verdict.score, source, verdict.note)


def source_in(reply: str, name: str) -> str:
    """The code of a reply: of several fenced blocks the last that defines the function, else the longest."""
    return code_in(reply, rf"def\s+{name}\b")


def verdict_on(source: str, options: Mapping[str, Any]) -> Verdict:
    """Run the function that ``source`` defines on the inputs in ``options["reference"]`` and compare its results: score
    1 if all agree, else 0. Raises SandboxDestroyed if the machine ended a sandbox or gave it no time, RuntimeError if
    numpy or shapely cannot be imported there."""
    asked = options["reference"]
    if word := next((word for word in BANNED if word in source), ""):
        return Verdict(0.0, f"banned: {word}", f"The code must not hold {word!r}.")
    with _pool(options.get("backend", "bwrap")).one() as sandbox:
        try:
            process = SolutionProcess(
                sandbox, _CALLED.read_text(), time_s=TIME_S, total_s=TOTAL_S, patience_s=PATIENCE_S, allowed_cpu_s=CPU_S
            )
            with closing(process):
                if process.loaded.failure is Failure.TIMED_OUT:  # nothing of an answer has run yet
                    raise SandboxDestroyed("the machine gave numpy and shapely no time", "infra")
                if fault := process.loaded.fault:
                    raise RuntimeError(f"numpy and shapely cannot be imported in the sandbox: {fault}")
                return _verdict(process, source, asked)
        except SandboxDestroyed as error:
            if error.blame != "policy":
                raise
            return Verdict(0.0, str(error))


def _verdict(process: SolutionProcess, source: str, asked: Mapping[str, Any]) -> Verdict:
    scene = asked["scene"]["get_obj_outer_pts_np"]
    answer = _ask(process, "define", asked["helpers"], source, scene)
    for number, test in enumerate(asked["tests"]):
        if failed := _failure(answer, ""):
            return failed
        answer = _ask(process, "call", asked["name"], test["args"])
        if failed := _failure(answer, f"test {number + 1}: "):
            return failed
        if not passes(asked["check"], test["expected"], answer.value):
            return Verdict(0.0, f"test {number + 1}: another result")
    return Verdict(1.0)


def _failure(answer: Answer, where: str) -> Verdict | None:
    if answer.fault:
        return Verdict(0.0, f"{where}{answer.fault}")
    try:
        value = decode(answer.value)
    except (NotPlain, TypeError, ValueError, OverflowError, RecursionError):
        return None  # no result either, and no test passes with it
    if not has_shape(value, (str, (str, str))) or value[0] != "raised":
        return None
    _, (name, message) = value
    return Verdict(0.0, f"{where}{name[:200]}", message)


def _ask(process: SolutionProcess, function: str, *args: Any) -> Answer:
    answer = process.ask({"function": function, "args": encode(args)})
    if answer.blame == "infra":
        raise SandboxDestroyed(f"the machine gave a function no time: {answer.failure}", "infra")
    return answer


def passes(check: str, expected: Any, encoded: Any) -> bool:
    """Whether a result agrees with ``expected`` (the data's value) by the comparison ``check``, a name in the data.
    ``encoded``: the result, untrusted data from the sandbox; anything malformed does not pass."""
    import shapely.errors

    try:
        with np.errstate(all="ignore"):  # of numbers that are none
            return _is_same(check, value_of(expected_form(expected)), value_of(decode(encoded)))
    except (*_INCOMPARABLE, shapely.errors.ShapelyError):
        return False


def _is_same(check: str, want: Any, got: Any) -> bool:
    """Whether two values agree. Raises errors of numpy and shapely for values that cannot be compared."""
    import shapely

    if isinstance(got, shapely.Geometry):
        coordinates = shapely.get_coordinates(got)
        if len(coordinates) > _POINTS and not (got.is_valid and got.is_simple):
            return False
        if not np.isfinite(coordinates).all():  # overlays with infinite shapes are empty, and would pass
            return False
    if check == "shape_lax":
        return bool(np.allclose(want.union(got).area, want.area, rtol=got.area))
    if check == "shape_area":
        return bool(want.symmetric_difference(got).area <= AREA * want.area)
    if check == "equal":
        return bool(want == got)
    if np.size(got) == 0 and np.size(want) > 0:
        return False  # nothing is close to anything
    return bool(np.allclose(want, got))


def expected_form(value: Any) -> Any:
    """Convert a data set's value, where a dict of one key gives the type, to the form [kind, content]."""
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "tuple":
            return ["list", [expected_form(item) for item in content]]
        return [kind, [content, []]] if kind == "polygon" else [kind, content]
    return ["list", [expected_form(item) for item in value]] if isinstance(value, list) else ["plain", value]


def value_of(form: Any) -> Any:
    """Build the value of a result in the form [kind, content]. Kinds: plain (a number, bool or str), list (of such
    forms), ndarray (numpy), polygon, linestring, linearring (shapely; a polygon's content is [shell, holes]). Raises
    ValueError, TypeError or a ShapelyError for anything else."""
    from shapely.geometry import LinearRing, LineString, Polygon

    kind, content = form
    if kind == "plain" and isinstance(content, bool | int | float | str):
        return content
    if kind == "list":
        return [value_of(item) for item in content]
    if kind == "polygon":
        return Polygon(*content)
    makers = {"ndarray": np.array, "linestring": LineString, "linearring": LinearRing}
    if kind not in makers:
        raise ValueError(f"a result of kind {kind!r}")
    return makers[kind](content)


def _pool(backend: str) -> WarmPool:
    mounts, limits = own_packages(), Limits(time_s=TIME_S, memory_bytes=_MEMORY_BYTES)
    spec = SandboxSpec(mounts=mounts, env={"PYTHONPATH": ":".join(mounts)}, limits=limits, run="robocodegen")
    return shared_pool(spec, backend)
