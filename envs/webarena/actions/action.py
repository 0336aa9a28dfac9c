"""``Action``: the twelve browser actions of WebArena, and the none-action of a reply that cannot be parsed.

The equivalence of actions follows libwebarena 0.0.4, ``is_equivalent``."""

from collections.abc import Mapping
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
WRITTEN: Mapping[Kind, tuple[str, tuple[str, ...]]] = {
    Kind.CLICK: ("click", ("element_id",)), Kind.HOVER: ("hover", ("element_id",)),
    Kind.TYPE: ("type", ("element_id", "text", "enter")), Kind.KEY_PRESS: ("press", ("key_comb",)),
    Kind.SCROLL: ("scroll", ("direction",)), Kind.GOTO_URL: ("goto", ("url",)),
    Kind.PAGE_FOCUS: ("tab_focus", ("page_number",)), Kind.STOP: ("stop", ("answer",)), Kind.NEW_TAB: ("new_tab", ()),
    Kind.PAGE_CLOSE: ("close_tab", ()), Kind.GO_BACK: ("go_back", ()), Kind.GO_FORWARD: ("go_forward", ()),
}  # fmt: skip
"""Name of each kind in both languages, and the fields of an action that it uses."""


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

    @property
    def written(self) -> tuple[str, dict[str, Any]]:
        """The name of its kind in both languages (``none`` for the none-action), and the fields in use."""
        name, fields = WRITTEN.get(self.kind, ("none", ()))
        return name, {field: getattr(self, field) for field in fields}

    def to_upstream(self) -> dict[str, Any]:
        """Convert the action to the dict of WebArena's recorded parser results: its type and the fields in use."""
        row = {"type": self.kind.value, **self.written[1]}
        if row.pop("enter", False):
            row["text"] += "\n"
        return row


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
    compared = (name for name in one.written[1] if name not in ("text", "enter"))
    return one.kind is other.kind and all(getattr(one, name) == getattr(other, name) for name in compared)
