"""Executes an action in a session's current tab by mouse and keyboard, as libwebarena 0.0.4 does.

``strict`` accepts the key names that models write (Ctrl); upstream does not."""

import platform
from collections.abc import Mapping

from playwright.async_api import Page

from envs.webarena.actions.action import ON_ELEMENTS, Action, Kind
from envs.webarena.browser.session import Session
from envs.webarena.browser.tree import Element

TYPED_CHARS = 500
"""Maximum characters that are typed key by key. Longer texts are inserted at once, like a paste."""
_SCROLL = "(document.scrollingElement || document.body).scrollTop {sign}= window.innerHeight"
_KEYS = {"ctrl": "Control", "cmd": "Meta", "command": "Meta", "esc": "Escape", "del": "Delete", "return": "Enter"}
_KEYS |= {"up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight", "pgup": "PageUp"}
_KEYS |= {"pgdn": "PageDown", "space": "Space", "control": "Control", "shift": "Shift", "alt": "Alt"}
_KEYS |= {"enter": "Enter", "tab": "Tab", "backspace": "Backspace", "delete": "Delete", "escape": "Escape"}


class NoElement(Exception):
    """Raised if the last observation has no element with the id of the action, which the message names."""


async def execute(action: Action, session: Session, elements: Mapping[str, Element], strict: bool = False) -> None:
    """Execute an action in the session's current tab; NONE and STOP do nothing. ``elements``: of the last observation,
    by id; ``strict``: accept aliases of keys that models write. Raises NoElement, NotAllowed, NotReached, NoSuchTab or
    Playwright's Error if the action fails, perhaps partly done; nothing if the page merely does not change."""
    if action.kind in ON_ELEMENTS and action.element_id not in elements:
        raise NoElement(f"no element [{action.element_id}] in the observation")
    page = await session.page()
    match action.kind:
        case Kind.HOVER:
            await page.mouse.move(*elements[action.element_id].centre)
        case Kind.CLICK | Kind.TYPE:
            await page.mouse.click(*elements[action.element_id].centre)
            if action.kind is Kind.TYPE:
                await type_text(action.text, action.enter, page)
        case Kind.KEY_PRESS:
            await page.keyboard.press(keys(action.key_comb, strict))
        case Kind.SCROLL:
            await page.evaluate(_SCROLL.format(sign="-" if action.direction == "up" else "+"))
        case Kind.GOTO_URL:
            await session.load(action.url)
        case Kind.NEW_TAB:
            await session.new_tab()
        case Kind.PAGE_FOCUS:
            await session.focus(action.page_number)
        case Kind.PAGE_CLOSE:
            await session.close_tab()
        case Kind.GO_BACK:
            await page.go_back()
        case Kind.GO_FORWARD:
            await page.go_forward()


async def type_text(text: str, enter: bool, page: Page) -> None:
    """Type ``text`` into the focused element of ``page`` (a line break is Enter), then press Enter if ``enter``."""
    if len(text) <= TYPED_CHARS:
        await page.keyboard.type(text)
    else:
        await page.keyboard.insert_text(text)
    if enter:
        await page.keyboard.press("Enter")


def keys(combination: str, strict: bool) -> str:
    """Convert a key combination ("ctrl+a") to Playwright's names; Meta becomes Control except on a Mac. ``strict``:
    convert aliases that models write (Ctrl), too."""
    names = combination.split("+")
    if strict:
        names = [_KEYS.get(name.strip().lower(), name.strip()) for name in names]
    if "Mac" not in platform.platform():
        names = ["Control" if name == "Meta" else name for name in names]
    return "+".join(names)
