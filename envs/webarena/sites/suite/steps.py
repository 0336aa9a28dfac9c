"""Builds the steps of an expert's plan, JSON objects that name page elements by role and name."""

from typing import Any

Step = dict[str, Any]


def goto(url: str) -> Step:
    return {"do": "goto", "url": url}


def click(role: str, name: str) -> Step:
    """A step of a plan that clicks the element with this role and name, else the first whose name contains it."""
    return {"do": "click", "role": role, "name": name}


def write(name: str, text: str, enter: bool = False, role: str = "textbox") -> Step:
    """A step of an expert's plan that types ``text`` into the field with this name, then presses Enter if ``enter``."""
    return {"do": "type", "role": role, "name": name, "text": text, "enter": enter}


def press(keys: str) -> Step:
    return {"do": "press", "keys": keys}


def stop(answer: str = "") -> Step:
    """Return the step that ends the task with an answer, always the last of a plan."""
    return {"do": "stop", "answer": answer}
