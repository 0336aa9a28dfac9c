"""Parses and writes symbolic actions: ``click [12]``, ``type [5] [pens] [1]``, ``stop [N/A]``.

The default parses as libwebarena 0.0.4 does, faults included: a text with a character that it cannot type is no action.
``strict`` also accepts the forms that the prompt shows (``[press_enter_after=0]``, ``[direction=down]``), texts of
several lines, and any character."""

import re

from envs.webarena.actions.action import TYPEABLE, WRITTEN, Action, ActionParsingError, Kind

MAX_DIGITS = 18
"""Maximum digits of a number. Python refuses to convert texts of thousands of digits."""
_KINDS = {name: kind for kind, (name, _) in WRITTEN.items()}
_ENTER_FLAG = re.compile(r"\[(?:press_enter_after=)?([01])\]$")


def parse_symbolic(text: str, strict: bool = False) -> Action:
    """Parse a text as one symbolic action. ``strict``: read it as the prompt describes actions, which accepts more
    forms than libwebarena does. Raises ActionParsingError for any other text."""
    text = text.strip()
    if not text:
        raise ActionParsingError("empty text: expected an action such as click [12]")
    name = text.partition("[")[0].strip() if "[" in text else text.split()[0]
    match _KINDS.get(name):
        case None:
            raise ActionParsingError(f"unknown action {name[:80]!r}: expected one of {', '.join(_KINDS)}")
        case Kind.CLICK | Kind.HOVER as kind:
            return Action(kind, element_id=_groups(rf"{name} ?\[(\d+)\]", text, f"{name} [digits]")[0])
        case Kind.TYPE:
            return _type(text, strict)
        case Kind.KEY_PRESS:
            return Action(Kind.KEY_PRESS, key_comb=_groups(r"press ?\[(.+)\]", text, "press [keys]")[0])
        case Kind.SCROLL:
            before = r"(?:direction ?= ?)?" if strict else ""
            (direction,) = _groups(rf"scroll ?\[?{before}(up|down)\]?", text, "scroll [up] or scroll [down]")
            return Action(Kind.SCROLL, direction=direction)
        case Kind.GOTO_URL:
            return Action(Kind.GOTO_URL, url=_groups(r"goto ?\[(.+)\]", text, "goto [url]")[0])
        case Kind.PAGE_FOCUS:
            digits = _groups(r"tab_focus ?\[(\d+)\]", text, "tab_focus [digits]")[0]
            if len(digits) > MAX_DIGITS:
                raise ActionParsingError(f"tab {digits[:20]}...: there are not so many")
            return Action(Kind.PAGE_FOCUS, page_number=int(digits))
        case Kind.STOP:
            match = re.search(r"stop ?\[(.+)\]", text, re.DOTALL if strict else 0)
            return Action(Kind.STOP, answer=match[1] if match else "")
        case kind:
            return Action(kind)


def _groups(pattern: str, text: str, expected: str, flags: int = 0) -> tuple[str, ...]:
    match = re.search(pattern, text, flags)
    if match is None:
        raise ActionParsingError(f"{text[:80]!r}: expected {expected}")
    return match.groups()


def _type(text: str, strict: bool) -> Action:
    expected = "type [digits] [text] [0 or 1]"
    if strict:
        flag = _ENTER_FLAG.search(text)
        body = text[: flag.start()] if flag else text
        element, content = _groups(r"type ?\[(\d+)\] ?\[(.*)\]", body, expected, re.DOTALL)
        return Action(Kind.TYPE, element_id=element, text=content, enter=flag is None or flag[1] == "1")
    if not text.endswith(("[0]", "[1]")):
        text += " [1]"
    element, content, flag_digits = _groups(r"type ?\[(\d+)\] ?\[(.+)\] ?\[(\d+)\]", text, expected)
    if unknown := sorted(set(content) - TYPEABLE):
        raise ActionParsingError(f"no key for {unknown[0]!r}")
    return Action(Kind.TYPE, element_id=element, text=content, enter=flag_digits == "1")


def render_symbolic(action: Action) -> str:
    """Write an action in symbolic form. The none-action becomes ``none``."""
    name, fields = action.written
    values = (int(value) if isinstance(value, bool) else value for value in fields.values())
    return " ".join([name, *(f"[{value}]" for value in values)])


def loses(action: Action) -> bool:
    """Whether libwebarena would read another action, or none, from the symbolic form, as for texts of several lines."""
    try:
        return parse_symbolic(render_symbolic(action)) != action
    except ActionParsingError:
        return True
