"""Prompts of InterCode-SQL, and how query results are shown in them.

``full`` explains the game for a model that follows instructions; ``brief`` has a few dozen tokens, for small tuned
models. The wording is the project's; the content is the protocol's (multi-turn game, unknown tables)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from envs.intercode.system_prompts import SYSTEM

Prompt = Literal["full", "brief"]
PROMPTS: tuple[Prompt, ...] = ("full", "brief")

SHOWN_ROWS = 50
SHOWN_CHARS = 1000

NO_CODE: dict[Prompt, str] = {
    "full": "No SQL statement was found in your reply. Answer with one statement in a fenced block: ```sql ... ```",
    "brief": "no SQL",
}
"""The observation after a reply without an SQL statement."""


def system_prompt(prompt: Prompt, max_turns: int, tables: Mapping[str, Sequence[str]] | None) -> str:
    """The system prompt of an episode of ``max_turns`` turns. ``tables``: table name -> column names, shown to a model
    with the handicap; None without it."""
    text = SYSTEM["sql"].format(max_turns=max_turns) if prompt == "full" else "Answer with one SQL query."
    if tables is None:
        return text
    listed = "\n".join(f"{name}({', '.join(columns)})" for name, columns in tables.items())
    return f"{text}\n\nTables and their columns:\n{listed}" if prompt == "full" else f"{text}\n{listed}"


def opening(prompt: Prompt, question: str) -> str:
    """The first user message of an episode."""
    return f"Question: {question}\nYour first statement?" if prompt == "full" else question


def turn(prompt: Prompt, question: str, output: str, reward: float) -> str:
    """The observation after one statement: its output and reward (0 to 1); with ``prompt`` "full" also the question."""
    if prompt == "brief":
        return f"{output}\nreward {reward:g}"
    return f"Output: {output}\nReward: {reward:g}\nThe question was: {question}\nTry something else."


def shown(rows: Sequence[tuple[Any, ...]], cut: bool) -> str:
    """Rows as a model sees them: the first 50 as a Python list, cut to 1000 characters, then their number if there are
    more or ``cut`` (the query had more rows than ``rows``). Without rows "No output"."""
    if not rows:
        return "No output"
    text = str(list(rows[:SHOWN_ROWS]))
    count = f" ({len(rows)}{' or more' if cut else ''} rows)" if cut or len(rows) > SHOWN_ROWS else ""
    return (text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "...") + count
