"""Runs inside the sandbox: a namespace for a robot's functions, and their results as plain lists.

``define`` runs helpers and an answer, ``call`` one function of it. Values go in as the data set writes them and come
out as ``[kind, content]`` by their exact type; of an exception, ``["raised", [name, traceback]]``. Whatever an answer
does to this process, it can only make up data. Imports nothing of the project: its text is handed in."""

from __future__ import annotations  # answers inherit it by compile: they may annotate types that they cannot import

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import shapely.affinity
import shapely.geometry
from shapely.coords import CoordinateSequence
from shapely.geometry import LinearRing, LineString, Polygon

ANSWER = "<reply>"
TRACEBACK_CHARS = 4000
_scope: dict[str, Any] = {}


def define(helpers: str, source: str, scene: dict[str, Any]) -> Any:
    _scope.update({"np": np, "numpy": np, "exec": _nothing, "eval": _nothing})
    for module in (shapely.geometry, shapely.affinity):
        _scope.update({name: getattr(module, name) for name in dir(module) if not name.startswith("_")})
    points = {name: np.array(of) for name, of in scene.items()}
    _scope["get_obj_outer_pts_np"] = lambda name: points[name].copy()
    exec(compile(helpers, "<helpers>", "exec"), _scope)
    linecache.cache[ANSWER] = (len(source), None, source.splitlines(keepends=True), ANSWER)
    return _unless_raised(lambda: exec(compile(source, ANSWER, "exec"), _scope))


def call(name: str, args: list[Any]) -> Any:
    return _unless_raised(lambda: result(_scope[name](*[argument(value) for value in args])))


def _unless_raised(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:
        whole = traceback.TracebackException.from_exception(error)
        of_answer = [place for place, frame in enumerate(whole.stack) if frame.filename == ANSWER]
        whole.stack = traceback.StackSummary.from_list(list(whole.stack)[of_answer[0] :] if of_answer else [])
        return ["raised", [type(error).__name__, "".join(whole.format())[-TRACEBACK_CHARS:]]]


def _nothing(*args: Any, **named: Any) -> None:
    return None


def argument(value: Any) -> Any:
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "tuple":
            return tuple(argument(item) for item in content)
        makers = {"ndarray": np.array, "linestring": LineString, "linearring": LinearRing, "polygon": Polygon}
        return makers[kind](content)
    return [argument(item) for item in value] if isinstance(value, list) else value


def result(value: Any) -> Any:
    kind = type(value)
    if kind in (bool, int, float, str):
        return ["plain", value]
    if kind in (list, tuple):
        return ["list", [result(item) for item in value]]
    if kind is np.ndarray and value.dtype.kind in "biuf":
        return ["ndarray", value.tolist()]
    if kind in (CoordinateSequence, np.matrix, np.poly1d):  # what numpy takes for an array
        return result(np.array(value))
    if issubclass(kind, np.generic) and kind.__module__ == "numpy":
        return result(value.item())
    if kind in (LineString, LinearRing):
        return [kind.__name__.lower(), [list(point) for point in value.coords]]
    if kind is Polygon:
        rings = [[list(point) for point in ring.coords] for ring in (value.exterior, *value.interiors)]
        return ["polygon", [rings[0], rings[1:]]]
    raise TypeError(f"a result of type {kind.__name__}")
