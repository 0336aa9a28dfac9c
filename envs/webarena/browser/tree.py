"""Converts an accessibility tree with boxes into the text that a model reads and the elements it may act on.

Rules of libwebarena 0.0.4 (``TextObervationProcessor``) for what is in view, which nodes make a line, and which lines
are dropped. An element is in view if enough of it is on screen: with ``strict`` visible area / area, in upstream
visible area / width * height."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

AxCompat = Literal["2023", "raw"]
"""2023: without what newer Chromium adds to its trees. raw: as Chromium gives them."""
Node = Mapping[str, Any]
Box = tuple[float, float, float, float]
"""x, y, width, height in CSS pixels of the viewport."""
ROOT_BOX: Box = (0.0, 0.0, 10.0, 10.0)
IN_VIEW = 0.6
_IGNORED = {"focusable", "editable", "readonly", "level", "settable", "multiline", "invalid"}
_ADDED_SINCE = {"url"}
_ROLES_OF_2023 = {"image": "img", "cell": "gridcell"}
_SAY_NOTHING = {
    "generic", "img", "list", "strong", "paragraph", "banner", "navigation", "Section", "LabelText", "Legend",
    "listitem",
}  # fmt: skip
_STATIC_TEXT = re.compile(r"\[\d+\] StaticText (.+)", re.DOTALL)


@dataclass(frozen=True)
class Element:
    """An element of an observation. ``text``: its role, name and properties as the model reads them."""

    role: str
    name: str
    text: str
    box: Box

    @property
    def centre(self) -> tuple[float, float]:
        x, y, width, height = self.box
        return x + width / 2, y + height / 2


def observe(
    nodes: Sequence[Node],
    boxes: Mapping[int, Box],
    screen: tuple[float, float],
    *,
    compat: AxCompat = "2023",
    strict: bool = False,
) -> tuple[str, dict[str, Element]]:
    """Returns (text of the elements in view, these elements by id). ``nodes``: Chromium's accessibility tree;
    ``boxes``: by backend node id; ``screen``: width and height in CSS pixels; ``compat``: format of the text;
    ``strict``: correct upstream's formula for what is in view (``visible``)."""
    tree: dict[str, tuple[Node, Box]] = {}
    for node in nodes:
        if node["nodeId"] not in tree:
            box = ROOT_BOX if _value(node, "role") == "RootWebArea" else boxes.get(node.get("backendDOMNodeId", -1))
            tree[node["nodeId"]] = node, box or (0.0,) * 4
    gone = {at for at, (node, box) in tree.items() if not visible(box, screen, strict) and node.get("parentId") in tree}
    lines: list[str] = []
    elements: dict[str, Element] = {}
    open_: list[tuple[str, int]] = [(at, 0) for at in tree if at not in gone][:1]
    while open_:
        at, depth = open_.pop()
        node, box = tree[at]
        line = None if at in gone else _line(node, compat)  # the children of a node out of view take its place
        if line:
            elements[at] = Element(*line, box)
            lines.append("\t" * depth + f"[{at}] {line[2]}")
        deeper = depth + 1 if line else depth
        open_ += [(child, deeper) for child in reversed(node.get("childIds", ())) if child in tree]
    return _without_repetitions("\n".join(lines)), elements


def visible(box: Box, screen: tuple[float, float], strict: bool) -> bool:
    """Whether at least ``IN_VIEW`` of a box overlaps the ``screen`` (width, height), by the ratio overlap / area
    if ``strict``, else upstream's (overlap / width) * height. False for an empty box."""
    x, y, width, height = box
    if width == 0 or height == 0:
        return False
    across = max(0.0, min(x + width, screen[0]) - max(x, 0.0))
    down = max(0.0, min(y + height, screen[1]) - max(y, 0.0))
    ratio = across * down / (width * height) if strict else across * down / width * height
    return ratio >= IN_VIEW


def _line(node: Node, compat: AxCompat) -> tuple[str, str, str] | None:
    """Return role, name, and the line of text (both with properties) of a node; None for a node without a line."""
    role, name = _value(node, "role"), _value(node, "name")
    if role is None or name is None or "backendDOMNodeId" not in node:
        return None
    if compat == "2023":
        role = _ROLES_OF_2023.get(role, role)
    ignored = _IGNORED | (_ADDED_SINCE if compat == "2023" else set())
    properties = [
        f"{one['name']}: {one['value']['value']}"
        for one in node.get("properties", ())
        if one["name"] not in ignored and "value" in one.get("value", {})
    ]
    if not name.strip() and (role in _SAY_NOTHING if not properties else role == "listitem"):
        return None
    return role, well_formed(name), well_formed(" ".join([f"{role} {name!r}", *properties]))


def _value(node: Node, field: str) -> str | None:
    value = node.get(field, {}).get("value")
    return value if isinstance(value, str) else None


def well_formed(text: str) -> str:
    """Replace every lone surrogate, which pages may contain and files may not, by a replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _without_repetitions(text: str) -> str:
    """Drop StaticText lines without text, or whose text one of the three preceding lines already contains."""
    kept: list[str] = []
    for line in text.split("\n"):
        if "statictext" in line.lower():
            match = _STATIC_TEXT.search(line)
            name = match[1][1:-1] if match else ""
            if not name or any(name in before for before in kept[-3:]):
                continue
        kept.append(line)
    return "\n".join(kept)
