"""``Action``: the twelve browser actions of WebArena, and the none-action of a reply that cannot be parsed.

The equivalence of actions follows libwebarena 0.0.4, ``is_equivalent``."""

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
_FIELDS = {
    Kind.CLICK: ("element_id",), Kind.HOVER: ("element_id",), Kind.TYPE: ("element_id", "text"),
    Kind.KEY_PRESS: ("key_comb",), Kind.SCROLL: ("direction",), Kind.GOTO_URL: ("url",),
    Kind.PAGE_FOCUS: ("page_number",), Kind.STOP: ("answer",),
}  # fmt: skip
"""Fields of an action that its kind uses, but for ``enter``; other kinds use none."""


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
        row = {"type": self.kind.value, **{name: getattr(self, name) for name in _FIELDS.get(self.kind, ())}}
        return {**row, "text": self.text + "\n" * self.enter} if self.kind is Kind.TYPE else row


NOTHING = Action(Kind.NONE)


@dataclass(frozen=True)
class Reading:
    """Result of parsing a reply: its action, or the none-action with an ``error`` that says why. ``coerced``: number of
    deviations from the language that were accepted, such as id='12' for id=12."""

    action: Action
    coerced: int = 0
    error: str = ""


def equivalent(one: Action, other: Action) -> bool:
    """Whether libwebarena treats two actions as equal: same kind and arguments, except the text of a TYPE."""
    compared = (name for name in _FIELDS.get(one.kind, ()) if name != "text")
    return one.kind is other.kind and all(getattr(one, name) == getattr(other, name) for name in compared)
