"""Reads a page for an observation: its accessibility tree, and one snapshot of the boxes of its nodes.

Upstream queries the box of every node separately, with two calls each; the resulting texts are equal. A box that the
snapshot lacks (of text within a textarea) is queried alone, in an isolated script world, because a page's own scripts
may have replaced what the browser provides. A page of more than ``MAX_ELEMENTS`` is not read."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from playwright.async_api import CDPSession
from playwright.async_api import Error as PlaywrightError

from envs.webarena.browser.tree import Box, Node

MAX_ELEMENTS = 40_000
"""Maximum elements of a page. For many more, Chromium needs a minute and gigabytes to build the tree."""
MAX_NODES = 3 * MAX_ELEMENTS
"""Maximum DOM nodes, counting text nodes and those within shadow roots."""
MAX_ASKED_ALONE = 200
_HAVE_NO_BOX = {"option", "MenuListPopup", "ListMarker", "InlineTextBox", "none", "generic"}
_WORLD = "lemur"
_ELEMENTS = "Document.prototype.getElementsByTagName.call(document, '*').length"
_RECT = """function () {
  if (this.nodeType !== 3) { const r = this.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }
  const range = document.createRange(); range.selectNode(this);
  const r = range.getBoundingClientRect(); return [r.x, r.y, r.width, r.height];
}"""


class PageTooLarge(Exception):
    """Raised if a page has too many elements or nodes to be read; the message has their number and the limit."""


async def capture(cdp: CDPSession) -> tuple[Sequence[Node], dict[int, Box]]:
    """Return the nodes of a page's accessibility tree, and boxes in the viewport by backend node id. Raises
    PageTooLarge, Playwright's Error if the page goes away, LookupError, TypeError or ValueError for odd answers."""
    await _check_size(cdp)
    snapshot, tree = await asyncio.gather(
        cdp.send("DOMSnapshot.captureSnapshot", {"computedStyles": []}), cdp.send("Accessibility.getFullAXTree")
    )
    nodes = [node for node in tree["nodes"] if node.get("role", {}).get("value") != "ListMarker"]
    boxes = _boxes(snapshot)
    await _ask_alone(cdp, nodes, boxes)
    return nodes, boxes


async def _check_size(cdp: CDPSession) -> None:
    """Raise PageTooLarge for too many elements, or too many nodes, among them those in closed shadow roots."""
    if await _nodes(cdp) <= MAX_ELEMENTS:
        return
    asked = {"expression": _ELEMENTS, "contextId": await _isolated_world(cdp), "returnByValue": True}
    elements = (await cdp.send("Runtime.evaluate", asked))["result"]["value"]
    if elements > MAX_ELEMENTS:
        raise PageTooLarge(f"the page has {elements:,} elements; at most {MAX_ELEMENTS:,} are read")
    await cdp.send("HeapProfiler.collectGarbage")  # a page that was left is still counted until then
    if (nodes := await _nodes(cdp)) > MAX_NODES:
        raise PageTooLarge(f"the page's process holds {nodes:,} nodes; at most {MAX_NODES:,} are read")


async def _nodes(cdp: CDPSession) -> int:
    """Return the number of DOM nodes in the page's process, including other pages and garbage not yet collected."""
    return int((await cdp.send("Memory.getDOMCounters"))["nodes"])


def _boxes(snapshot: Mapping[str, Any]) -> dict[int, Box]:
    """Return the boxes of the main document by backend node id, in CSS pixels of the scrolled viewport."""
    document = snapshot["documents"][0]
    left, top = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    ids, layout = document["nodes"]["backendNodeId"], document["layout"]
    boxes: dict[int, Box] = {}
    for place, (x, y, width, height) in zip(layout["nodeIndex"], layout["bounds"], strict=True):
        boxes.setdefault(ids[place], (x - left, y - top, width, height))
    return boxes


async def _ask_alone(cdp: CDPSession, nodes: Sequence[Node], boxes: dict[int, Box]) -> None:
    lacking = [
        node["backendDOMNodeId"]
        for node in nodes
        if not node.get("ignored")
        and node.get("backendDOMNodeId", -1) not in boxes
        and "backendDOMNodeId" in node
        and node.get("role", {}).get("value") not in _HAVE_NO_BOX
    ]
    if not lacking:
        return
    world = await _isolated_world(cdp)
    for backend in dict.fromkeys(lacking[:MAX_ASKED_ALONE]):
        if box := await _rect(cdp, backend, world):
            boxes[backend] = box


async def _isolated_world(cdp: CDPSession) -> int:
    """Return the id of a script world that the page's scripts cannot affect; it lasts as long as the document."""
    frame = (await cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
    made = await cdp.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": _WORLD})
    return int(made["executionContextId"])


async def _rect(cdp: CDPSession, backend: int, world: int) -> Box | None:
    try:
        remote = await cdp.send("DOM.resolveNode", {"backendNodeId": backend, "executionContextId": world})
        asked = {"objectId": remote["object"]["objectId"], "functionDeclaration": _RECT, "returnByValue": True}
        result = await cdp.send("Runtime.callFunctionOn", asked)
        x, y, width, height = map(float, result["result"]["value"])
    except (PlaywrightError, KeyError, TypeError, ValueError):  # no such node any more, or none with a box
        return None
    return (x, y, width, height) if all(map(math.isfinite, (x, y, width, height))) else None
