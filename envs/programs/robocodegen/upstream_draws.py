"""Draws RoboCodeGen's inputs as the published notebook does, from a seed: ``--compat``.

Five draws per problem. Matrices are not scaled, so that none is stable; a ring may have one point, at which the
reference divides by zero and every answer fails; shapes are compared laxly. Problems about the scene's objects have the
data's inputs, with the pair of equal blocks whose order depends on rounding. Draws depend on seed and name alone."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from shapely.geometry import LinearRing, LineString, Polygon

from envs.programs.robocodegen.called import argument, result
from envs.programs.robocodegen.reference import FUNCTIONS, IN_SCENE
from envs.programs.robocodegen.results import passes
from lemur_ray.sandbox.inside.payload.plain_values import encode

NUM_DRAWS = 5
LAX = "shape_lax"
EQUAL_BLOCKS = ["block2", "block4"]
Random = np.random.Generator


def _points(random: Random) -> Any:
    return random.random((10, 2))


def _ring(random: Random) -> Any:
    return random.random((6, 2))


def _box_and_point(random: Random) -> list[Any]:
    return [np.concatenate([-random.random(2), random.random(2)]), 2 * random.random(2) - 1]


_TS = np.linspace(0, 10, 10)
DRAWS: dict[str, Callable[[Random], list[Any]]] = {
    **dict.fromkeys((f"get_{side}_most_idx" for side in ("top", "bottom", "left", "right")), lambda r: [_points(r)]),
    **dict.fromkeys(("get_farthest_idx", "get_closest_idx", "translate_pts_np"), lambda r: [_points(r), r.random(2)]),
    "get_bbox_xyxy_area": lambda r: [np.concatenate([r.random(2), 1 + r.random(2)])],
    "bbox_xyxy_contains_pt": _box_and_point,
    "interpolate_pts_np": lambda r: [r.random(2), r.random(2), 3],
    "reverse_pts": lambda r: [_points(r)],
    "normalize_vector": lambda r: [r.random(int(r.integers(1, 10)))],
    "rotate_pts_around_pts_center_np": lambda r: [_points(r), r.random()],
    "scale_pts_around_centroid_np": lambda r: [_points(r), r.random(), r.random()],
    "fit_2d_np_polys": lambda r: [_TS, _points(r), int(r.integers(3, 6))],
    "evaluate_pts_2d_from_poly_coeffs": lambda r: [*r.random((2, 5)), _TS],
    "pd_control": lambda r: [r.random(2), r.random(2), r.random(2), r.random(), r.random()],
    "end_effector_impedance_control": lambda r: [
        *(r.random(3) for _ in range(3)), np.diag(r.random(3)), np.diag(r.random(3)), r.random((3, 6)),
    ],
    "is_discrete_system_stable": lambda r: [r.random((5, 5))],
    "is_closed_loop_discrete_system_stable": lambda r: [r.random((5, 5)), r.random((5, 3)), r.random((3, 5))],
    "get_closest_point_on_line_to_point": lambda r: [LineString(r.random((2, 2))), r.random(2)],
    "get_direction_orthogonal_to_line": lambda r: [LineString(r.random((2, 2)))],
    "get_direction_orthogonal_to_line_to_point": lambda r: [LineString(r.random((2, 2))), r.random(2)],
    "get_points_from_polygon": lambda r: [Polygon(_ring(r))],
    "interpolate_pts_along_exterior": lambda r: [LinearRing(_ring(r)), int(r.integers(1, 100))],
    "interpolate_pts_on_line": lambda r: [LineString(r.random((2, 2))), int(r.integers(2, 100))],
    "make_line": lambda r: [r.random(2), r.random(2)],
    "make_circle": lambda r: [r.random(), r.random(2)],
    "make_rectangle": lambda r: [r.random(), r.random(), r.random(2)],
    "make_ellipse": lambda r: [r.random(2), r.random(), r.random()],
}  # fmt: skip


def as_published(problem: Mapping[str, Any], scene: Mapping[str, Any], seed: int) -> dict[str, Any] | None:
    """Copy of ``problem`` with the tests of the published notebook, for ``--compat``: ``NUM_DRAWS`` random inputs by
    ``seed``; or, for a problem about the objects of ``scene``, the data's tests and the same with blocks of equal size.
    None if the problem is unknown, or the project's reference solution fails the data's tests."""
    name = str(problem["name"])
    outlines = {of: np.array(points) for of, points in scene.items()}
    if name not in {**FUNCTIONS, **IN_SCENE}:
        return None
    if not all(_reproduces(problem, test, outlines) for test in problem["tests"]):
        return None
    check = LAX if problem["check"] == "shape_area" else problem["check"]
    if name in IN_SCENE:
        tests = [*problem["tests"], *_equal_blocks(name, outlines)]
    else:
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        tests = [_drawn(name, DRAWS[name](random)) for _ in range(NUM_DRAWS)]
    return {**problem, "check": check, "tests": tests}


def _reproduces(problem: Mapping[str, Any], test: Mapping[str, Any], outlines: Mapping[str, Any]) -> bool:
    name = problem["name"]
    try:
        args = [argument(form) for form in test["args"]]
        value = IN_SCENE[name](outlines, *args) if name in IN_SCENE else FUNCTIONS[name](*args)
        return passes(problem["check"], test["expected"], encode(result(value)))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return False  # it takes other arguments


def _equal_blocks(name: str, outlines: Mapping[str, Any]) -> list[dict[str, Any]]:
    if name != "is_obj0_bigger_than_obj1":
        return []
    return [{"args": EQUAL_BLOCKS, "expected": bool(IN_SCENE[name](outlines, *EQUAL_BLOCKS))}]


def _drawn(name: str, args: list[Any]) -> dict[str, Any]:
    try:
        expected = form_of(FUNCTIONS[name](*args))
    except ZeroDivisionError:
        expected = None  # what nothing equals
    return {"args": [form_of(arg) for arg in args], "expected": expected}


def form_of(value: Any) -> Any:
    """A value in the data set's form: plain values and lists, or a dict of one key that gives the type."""
    kind, content = result(value)
    if kind == "plain":
        return content
    if kind == "list":
        items = [form_of(item) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    return {kind: content[0] if kind == "polygon" else content}
