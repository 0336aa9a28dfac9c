"""Steps of an expert's plan, which name elements by role and name. JSON values; knows no page."""

from __future__ import annotations

from typing import Any

Step = dict[str, Any]


def goto(url: str) -> Step:
    return {"do": "goto", "url": url}


def click(role: str, name: str) -> Step:
    """Click the element with this role and name (ignoring whitespace), else the first whose name contains it."""
    return {"do": "click", "role": role, "name": name}


def write(name: str, text: str, enter: bool = False, role: str = "textbox") -> Step:
    """Type into the field of this name."""
    return {"do": "type", "role": role, "name": name, "text": text, "enter": enter}


def press(keys: str) -> Step:
    return {"do": "press", "keys": keys}


def stop(answer: str = "") -> Step:
    """End the task. Always the last step."""
    return {"do": "stop", "answer": answer}
