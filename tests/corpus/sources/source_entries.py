"""Texts of code, and the writer of files of sources."""

from collections.abc import Callable

Write = Callable[..., str]
"""Writes a YAML file of sources, given as dicts; returns its path."""


def code(part: str, count: int = 50) -> list[str]:
    return [f"def function_{part}_{i}(a, b):\n    return a + b * {i}\n" * 3 for i in range(count)]
