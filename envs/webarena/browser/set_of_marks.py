"""Set of marks: draws a screenshot in which each actionable element is framed and labelled with its id.

Drawn over the picture in a separate page, so that the episode's pages never contain marks. After Yang et al. 2023."""

import base64
from collections.abc import Mapping

from playwright.async_api import Browser, BrowserContext

from envs.webarena.browser.tree import Element

MARKED = {
    *("link", "button", "textbox", "searchbox", "combobox", "checkbox", "radio", "tab", "menuitem", "spinbutton"),
    *("slider", "switch", "option", "treeitem", "menuitemcheckbox", "menuitemradio", "gridcell", "listbox"),
}
"""Roles of elements that one clicks or types into."""
COLOURS = ("#c4122f", "#0b57d0", "#137333", "#8430ce", "#b06000", "#00639b")
_LABEL = 14
"""Height of a label in pixels; a digit is about half as wide."""


def drawing(picture: bytes, size: tuple[int, int], elements: Mapping[str, Element]) -> str:
    """HTML of a page that shows a PNG ``picture`` of ``size`` (width, height in pixels), with a frame and the id on
    each element. It loads nothing."""
    shapes = "".join(_mark(at, one, number, size) for number, (at, one) in enumerate(_marked(elements, size)))
    wide, high = size
    return (
        "<!doctype html><style>*{margin:0}img,svg{position:absolute;left:0;top:0}"
        f"text{{font:700 {_LABEL - 3}px sans-serif;fill:#fff}}</style>"
        f'<img width="{wide}" height="{high}" src="{data_url(picture)}">'
        f'<svg width="{wide}" height="{high}">{shapes}</svg>'
    )


def _marked(elements: Mapping[str, Element], size: tuple[int, int]) -> list[tuple[str, Element]]:
    """Return ids and elements to mark: centred in the picture, the largest first, so that small labels are on top."""
    marked = [
        (at, one)
        for at, one in elements.items()
        if one.role in MARKED and all(0 <= place < most for place, most in zip(one.centre, size, strict=True))
    ]
    return sorted(marked, key=lambda item: -item[1].box[2] * item[1].box[3])


def _mark(at: str, element: Element, number: int, size: tuple[int, int]) -> str:
    x, y, width, height = element.box
    colour, label = COLOURS[number % len(COLOURS)], 4 + 7 * len(at)
    left, top = min(max(x, 0), size[0] - label), min(max(y - _LABEL, 0), size[1] - _LABEL)
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="none" stroke="{colour}" '
        f'stroke-width="2"/><rect x="{left:g}" y="{top:g}" width="{label}" height="{_LABEL}" fill="{colour}"/>'
        f'<text x="{left + 2:g}" y="{top + _LABEL - 3:g}">{int(at)}</text>'
    )


def data_url(picture: bytes) -> str:
    """Encode a PNG picture as a ``data:`` URL."""
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


class Easel:
    """Draws marks for one episode, in an offline context, within the browser's event loop. ``size``: in pixels."""

    def __init__(self, browser: Browser, size: tuple[int, int]) -> None:
        self._browser, self._size = browser, size
        self._context: BrowserContext | None = None

    async def marked(self, picture: bytes, elements: Mapping[str, Element]) -> bytes:
        """Draw the elements' marks on a PNG picture and return the result as PNG. Raises Playwright's Error."""
        if self._context is None:
            wide, high = self._size
            self._context = await self._browser.new_context(
                viewport={"width": wide, "height": high}, device_scale_factor=1, offline=True, java_script_enabled=False
            )
            await self._context.new_page()
        page = self._context.pages[0]
        await page.set_content(drawing(picture, self._size, elements))
        return await page.screenshot()

    async def close(self) -> None:
        if self._context is not None:
            await self._context.close()
        self._context = None
