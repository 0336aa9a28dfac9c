"""``Action``: the twelve browser actions of WebArena, and the none-action of a reply that cannot be parsed.

The equivalence of actions follows libwebarena 0.0.4, ``is_equivalent``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TYPEABLE = frozenset(chr(code) for code in (*range(32, 128), *range(129, 1000))) | {"\n"}
"""Characters that upstream can type. It raises KeyError for any other."""


class ActionParsingError(ValueError):
    """Raised if a text cannot be parsed as an action. The message says why."""


class Kind(StrEnum):
    """Kinds of actions, by upstream's names. NONE: the reply had no action that can be parsed."""

    NONE = "NONE"
    CLICK = "CLICK"
    HOVER = "HOVER"
    TYPE = "TYPE"
    KEY_PRESS = "KEY_PRESS"
    SCROLL = "SCROLL"
    GOTO_URL = "GOTO_URL"
    NEW_TAB = "NEW_TAB"
    PAGE_FOCUS = "PAGE_FOCUS"
    PAGE_CLOSE = "PAGE_CLOSE"
    GO_BACK = "GO_BACK"
    GO_FORWARD = "GO_FORWARD"
    STOP = "STOP"


ON_ELEMENTS = (Kind.CLICK, Kind.HOVER, Kind.TYPE)


@dataclass(frozen=True)
class Action:
    """One browser action. Its kind determines which of the other fields are used."""

    kind: Kind
    element_id: str = ""
    """Id of the element to CLICK, HOVER over or TYPE into: digits, as the model wrote them."""
    text: str = ""
    """Text to TYPE, without a trailing Enter."""
    enter: bool = False
    """Whether a TYPE presses Enter afterwards."""
    key_comb: str = ""
    direction: str = ""
    """Direction of a SCROLL: up or down."""
    url: str = ""
    page_number: int = 0
    """Tab of a PAGE_FOCUS, from 0."""
    answer: str = ""
    """Answer of a STOP."""

    def to_upstream(self) -> dict[str, Any]:
        """Convert the action to the dict of WebArena's recorded parser results: its type and the fields in use."""
        row: dict[str, Any] = {"type": self.kind.value}
        match self.kind:
            case Kind.CLICK | Kind.HOVER:
                row["element_id"] = self.element_id
            case Kind.TYPE:
                row |= {"element_id": self.element_id, "text": self.text + "\n" * self.enter}
            case Kind.KEY_PRESS:
                row["key_comb"] = self.key_comb
            case Kind.SCROLL:
                row["direction"] = self.direction
            case Kind.GOTO_URL:
                row["url"] = self.url
            case Kind.PAGE_FOCUS:
                row["page_number"] = self.page_number
            case Kind.STOP:
                row["answer"] = self.answer
        return row


NOTHING = Action(Kind.NONE)


def equivalent(one: Action, other: Action) -> bool:
    """Whether libwebarena treats two actions as equal: same kind and arguments, except the text of a TYPE."""
    if one.kind is not other.kind:
        return False
    match one.kind:
        case Kind.SCROLL:
            return one.direction == other.direction
        case Kind.KEY_PRESS:
            return one.key_comb == other.key_comb
        case Kind.CLICK | Kind.HOVER | Kind.TYPE:
            return one.element_id == other.element_id
        case Kind.PAGE_FOCUS:
            return one.page_number == other.page_number
        case Kind.GOTO_URL:
            return one.url == other.url
        case Kind.STOP:
            return one.answer == other.answer
    return True
