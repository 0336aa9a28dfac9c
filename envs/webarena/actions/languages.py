"""Parses replies and writes actions in both action languages: symbolic, click [12], and Python calls, click(id=12).

Every action that a model is shown is written by ``render``, so that prompts differ in nothing but the language."""

import contextlib
import re
from typing import Literal

from envs.webarena.actions.action import NOTHING, Action, ActionParsingError, Reading
from envs.webarena.actions.python_calls import parse_calls, render_call
from envs.webarena.actions.symbolic import parse_symbolic, render_symbolic

Language = Literal["symbolic", "python"]
FENCE = "```"
_FENCED = re.compile(r"```(.*?)```", re.DOTALL)
_TAG = re.compile(r"\s*(?:python|py|Python)[ \t]*\n")


def render(action: Action, language: Language) -> str:
    """Write an action as text in a language ("symbolic" or "python"). The none-action is ``none`` in symbolic form; as
    a Python call it raises ValueError."""
    return render_call(action) if language == "python" else render_symbolic(action)


def read_reply(reply: str, language: Language, strict: bool = False) -> Reading:
    """Parse the action in a model's reply. Without one, the result has the none-action and an error. ``strict``: accept
    more symbolic forms than libwebarena does. Never raises."""
    try:
        return _read_python(reply) if language == "python" else _read_symbolic(reply, strict)
    except ActionParsingError as error:
        return Reading(NOTHING, error=str(error))


def _read_symbolic(reply: str, strict: bool) -> Reading:
    """Parse the text between the first pair of ``` fences, as libwebarena does. Raises ActionParsingError."""
    fenced = _FENCED.search(reply)
    if fenced is None:
        raise ActionParsingError(f"no action between {FENCE} and {FENCE}")
    return Reading(parse_symbolic(fenced[1].strip(), strict))


def _read_python(reply: str) -> Reading:
    """Parse the first fenced block, or without one the first line that is a call. Raises ActionParsingError."""
    fenced = _FENCED.search(reply)
    if fenced is not None:
        return parse_calls(_TAG.sub("", fenced[1], count=1))
    for line in reply.splitlines():
        with contextlib.suppress(ActionParsingError):
            return parse_calls(line)
    raise ActionParsingError("no fenced block and no line that is a call")
