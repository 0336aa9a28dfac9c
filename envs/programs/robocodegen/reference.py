"""The project's reference functions for RoboCodeGen, which give the expected results of new inputs.

Where the data has results, a function is used only if it reproduces them (``upstream_draws.py``). They keep
peculiarities of the published references: only one of a line's two normals is right, a closed ring counts its first
corner twice, axes of an ellipse are half axes, distances are measured from the first object, and an object's distance
is that of its nearest corner."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from shapely.affinity import scale
from shapely.geometry import LinearRing, LineString, Point, Polygon, box

Scene = Mapping[str, Any]


def _unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def _nearest(line: LineString, point: Any) -> Any:
    return np.array(line.interpolate(line.project(Point(point))).coords[0])


def _turned(points: Any, degrees: float) -> Any:
    angle, centre = np.deg2rad(degrees), points.mean(axis=0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (points - centre) @ turn.T + centre


def _stretched(points: Any, by_x: float, by_y: float) -> Any:
    centre = points.mean(axis=0)
    return (points - centre) * np.array([by_x, by_y]) + centre


def _across(line: LineString) -> Any:
    (x0, y0), (x1, y1) = line.coords
    return _unit(np.array([y1 - y0, -(x1 - x0)]))


def _towards(line: LineString, point: Any) -> Any:
    """Unit vector orthogonal to the line, on the side of it where the point is."""
    across = _across(line)
    return np.sign((point - np.array(line.coords[0])) @ across) * across


def _along(line: LineString | LinearRing, num_points: int) -> list[Any]:
    """Evenly spaced points along a line. ZeroDivisionError for one point, as in the published reference."""
    return [line.interpolate(k / (num_points - 1), normalized=True).coords[0] for k in range(num_points)]


def _stable(matrix: Any) -> bool:
    return bool(np.all(np.abs(np.linalg.eigvals(matrix)) < 1))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "get_top_most_idx": lambda points: points[:, 1].argmax(),
    "get_bottom_most_idx": lambda points: points[:, 1].argmin(),
    "get_left_most_idx": lambda points: points[:, 0].argmin(),
    "get_right_most_idx": lambda points: points[:, 0].argmax(),
    "get_farthest_idx": lambda points, point: np.linalg.norm(points - point, axis=1).argmax(),
    "get_closest_idx": lambda points, point: np.linalg.norm(points - point, axis=1).argmin(),
    "get_bbox_xyxy_area": lambda corners: (corners[2] - corners[0]) * (corners[3] - corners[1]),
    "bbox_xyxy_contains_pt": lambda b, point: bool(b[0] <= point[0] <= b[2] and b[1] <= point[1] <= b[3]),
    "interpolate_pts_np": lambda start, end, num_points: np.linspace(start, end, num_points),
    "reverse_pts": lambda points: points[::-1],
    "normalize_vector": _unit,
    "translate_pts_np": lambda points, by: points + by,
    "rotate_pts_around_pts_center_np": _turned,
    "scale_pts_around_centroid_np": _stretched,
    "fit_2d_np_polys": lambda ts, points, degree: tuple(np.polyfit(ts, points[:, k], degree) for k in (0, 1)),
    "evaluate_pts_2d_from_poly_coeffs": lambda xs, ys, ts: np.stack([np.polyval(xs, ts), np.polyval(ys, ts)], axis=1),
    "pd_control": lambda here, goal, speed, stiff, damp: stiff * (goal - here) - damp * speed,
    "end_effector_impedance_control": lambda here, goal, speed, stiff, damp, jacobian: (
        jacobian.T @ (stiff @ (goal - here) - damp @ speed)
    ),
    "is_discrete_system_stable": _stable,
    "is_closed_loop_discrete_system_stable": lambda a, b, k: _stable(a - b @ k),
    "get_closest_point_on_line_to_point": _nearest,
    "get_direction_orthogonal_to_line": _across,
    "get_direction_orthogonal_to_line_to_point": _towards,
    "get_points_from_polygon": lambda polygon: np.array(polygon.exterior.coords),
    "interpolate_pts_along_exterior": _along,
    "interpolate_pts_on_line": _along,
    "make_line": lambda start, end: LineString([start, end]),
    "make_circle": lambda radius, centre: Point(centre).buffer(radius),
    "make_rectangle": lambda w, h, c: box(c[0] - w / 2, c[1] - h / 2, c[0] + w / 2, c[1] + h / 2),
    "make_ellipse": lambda centre, major, minor: scale(Point(centre).buffer(1.0), major, minor),
}
"""Reference functions whose arguments are plain values, by name."""


def _does_not_contain(scene: Scene, name: str, others: Sequence[str]) -> bool:
    return not any(Polygon(scene[name]).contains(Polygon(scene[other])) for other in others)


def _bounds(scene: Scene, names: Sequence[str]) -> Any:
    points = np.concatenate([scene[name] for name in names])
    return np.concatenate([points.min(axis=0), points.max(axis=0)])


def _close(scene: Scene, names: Sequence[str], threshold: float) -> bool:
    centres = np.array([scene[name].mean(axis=0) for name in names])
    return bool(np.all(np.linalg.norm(centres - centres[0], axis=1) < threshold))


def _any_meet(scene: Scene, names: Sequence[str]) -> bool:
    shapes = [Polygon(scene[name]) for name in names]
    return any(one.intersects(other) for place, one in enumerate(shapes) for other in shapes[place + 1 :])


def _area(scene: Scene, name: str) -> float:
    return float(Polygon(scene[name]).area)


IN_SCENE: dict[str, Callable[..., Any]] = {
    "obj_shape_does_not_contain_others": _does_not_contain,
    "is_obj0_bigger_than_obj1": lambda scene, one, other: _area(scene, one) > _area(scene, other),
    "get_one_bbox_xyxy_of_all_objs": _bounds,
    "are_obj_centers_close": _close,
    "get_name_of_biggest_obj": lambda scene, names: max(names, key=lambda name: _area(scene, name)),
    "do_any_object_shapes_intersect_with_each_other": _any_meet,
    "get_name_of_obj_with_min_dist_to_pt": lambda scene, point, names: min(
        names, key=lambda name: np.linalg.norm(scene[name] - point, axis=1).min()
    ),
}
"""Reference functions about the scene's objects, by name. Their first argument is the scene: outlines by object."""
