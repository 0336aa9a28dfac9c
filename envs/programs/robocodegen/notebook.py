"""Extracts RoboCodeGen's problems from the published notebook: names, signatures, comparisons and the scene.

The notebook is parsed, never run. It draws its inputs without a seed and has code as references, so here inputs are
fixed and expected results come from the project's references. Inputs without a clear verdict are avoided: matrices of
which none is stable, a ring with one point, objects whose equal size depends on rounding."""

import ast
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from envs.programs.robocodegen.reference import FUNCTIONS, IN_SCENE
from envs.programs.robocodegen.upstream_draws import DRAWS, NUM_DRAWS, form_of
from lemur_ray.benchmarks.rows import read_value

_SEED = 0
_CHECKS = {"allclose": "allclose", "eq": "equal", "shape_eq": "shape_area"}
"""Comparison in the notebook -> comparison in the data."""
_LISTS = ("problems_np", "problems_ctrl", "problems_shapely", "problems_api")
_STABLE = 0.9
"""Spectral radius to which matrices are scaled to make them stable."""


def read_notebook(path: Path) -> dict[str, Any]:
    """Read the published notebook (.ipynb) at ``path``: {"problems": ..., "scene": ...} in the form of problems.json,
    with this project's inputs and expected results. Raises ValueError that names the file and the fault."""
    try:
        assigned = _assigned_values(path)
        names, places, sizes = (ast.literal_eval(assigned[name]) for name in ("obj_names", "obj_positions", "sizes"))
        outlines = {
            name: np.array(FUNCTIONS["make_rectangle"](size, size, place).exterior.coords)
            for name, place, size in zip(names, places, sizes, strict=False)  # there is one place more than names
        }
        problems = [
            _problem(one, kind.removeprefix("problems_"), outlines) for kind in _LISTS for one in _dicts(assigned[kind])
        ]
    except (LookupError, ValueError, TypeError, SyntaxError, AttributeError) as error:
        raise ValueError(
            f"{path}: not the notebook of RoboCodeGen that was published: {type(error).__name__}: {error}"
        ) from error
    return {"problems": problems, "scene": {"get_obj_outer_pts_np": {n: line.tolist() for n, line in outlines.items()}}}


def _assigned_values(path: Path) -> dict[str, ast.expr]:
    """Values assigned in the cell with the problems, without their ``np.array(...)``."""
    sources = ["".join(cell["source"]) for cell in read_value(path)["cells"] if cell["cell_type"] == "code"]
    (cell,) = (source for source in sources if all(f"{name} = [" in source for name in _LISTS))
    values = {}
    for one in ast.parse(cell).body:
        match one:
            case ast.Assign([ast.Name(name), *_], ast.Call(ast.Attribute(attr="array"), [listed, *_])):
                values[name] = listed
            case ast.Assign([ast.Name(name), *_], value):
                values[name] = value
    return values


def _dicts(listed: ast.expr) -> Iterator[dict[str, ast.expr]]:
    for one in listed.elts:  # type: ignore[attr-defined]
        yield {ast.literal_eval(key): value for key, value in zip(one.keys, one.values, strict=True)}


def _problem(one: Mapping[str, ast.expr], suite: str, outlines: Mapping[str, Any]) -> dict[str, Any]:
    name, signature = ast.literal_eval(one["f_name"]), ast.literal_eval(one["f_sig"])
    how = one["test_equiv"]
    check = _CHECKS[how.attr if isinstance(how, ast.Attribute) else how.id]  # type: ignore[attr-defined]
    given = _ASKED[name](outlines) if name in IN_SCENE else _drawn(name)
    function = partial(IN_SCENE[name], outlines) if name in IN_SCENE else FUNCTIONS[name]
    tests = [{"args": [form_of(arg) for arg in args], "expected": form_of(function(*args))} for args in given]
    prompt = f"# define function: {signature}."
    return {"name": name, "suite": suite, "signature": signature, "prompt": prompt, "check": check, "tests": tests}


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng([_SEED, zlib.crc32(name.encode())])


def _drawn(name: str) -> list[list[Any]]:
    random = _random(name)
    drawn = [DRAWS[name](random) for _ in range(NUM_DRAWS)]
    if name == "interpolate_pts_along_exterior":
        return [[ring, int(random.integers(2, 20))] for ring, _ in drawn]
    if name == "is_discrete_system_stable":
        return [[_stable(a)] if place % 2 == 0 else [a] for place, (a,) in enumerate(drawn)]
    if name == "is_closed_loop_discrete_system_stable":
        return [[_stable(a - b @ k) + b @ k, b, k] if n % 2 == 0 else [a, b, k] for n, (a, b, k) in enumerate(drawn)]
    return drawn


def _stable(matrix: Any) -> Any:
    return matrix * _STABLE / np.abs(np.linalg.eigvals(matrix)).max()


Outlines = Mapping[str, Any]


def _halves(outlines: Outlines) -> tuple[list[str], list[str]]:
    names = list(outlines)
    return names[: len(names) // 2], names[len(names) // 2 :]


def _one_and_others(outlines: Outlines) -> list[list[Any]]:
    one, other = _halves(outlines)
    return [*([name, other] for name in one), *([name, one] for name in other)]


def _pairs(outlines: Outlines) -> list[list[Any]]:
    one, other = _halves(outlines)
    return [[a, b] for a in one for b in other if not _as_large(outlines, a, b)][:NUM_DRAWS]


def _near_and_far(outlines: Outlines) -> list[list[Any]]:
    asked = []
    for names in _halves(outlines):
        centres = np.array([outlines[name].mean(axis=0) for name in names])
        farthest = float(np.linalg.norm(centres - centres[0], axis=1).max())
        asked += [[names, 0.5 * farthest], [names, 1.5 * farthest]]
    return asked


def _arrays_of_other_sizes(outlines: Outlines) -> list[list[Any]]:
    return [
        [[name for n, name in enumerate(names) if not any(_as_large(outlines, name, other) for other in names[:n])]]
        for names in _halves(outlines)
    ]


def _as_large(outlines: Outlines, one: str, other: str) -> bool:
    width, height = (np.ptp(outlines[name][:, 0]) for name in (one, other))
    return bool(np.isclose(width, height))


_ASKED: dict[str, Callable[[Outlines], list[list[Any]]]] = {
    "obj_shape_does_not_contain_others": _one_and_others,
    "is_obj0_bigger_than_obj1": _pairs,
    "get_one_bbox_xyxy_of_all_objs": lambda outlines: [[names] for names in _halves(outlines)],
    "are_obj_centers_close": _near_and_far,
    "get_name_of_biggest_obj": _arrays_of_other_sizes,
    "do_any_object_shapes_intersect_with_each_other": lambda outlines: [[names] for names in _halves(outlines)],
    "get_name_of_obj_with_min_dist_to_pt": lambda outlines: [
        [point, names]
        for point, names in zip(
            _random("get_name_of_obj_with_min_dist_to_pt").random((2, 2)), _halves(outlines), strict=True
        )
    ],
}
"""Problem about the scene's objects -> function of their outlines that returns the arguments of its tests."""
