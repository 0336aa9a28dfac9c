"""A single question as a task, and what its grader says of a reply.

A grader is a function of a module, named in the task as ``module:function``, so that it is found wherever an episode is
played: ``grade(reply, options) -> Graded``, where ``options`` are the task's. Knows no benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Task
from lemur_ray.host.renamed_names import renamed_names

ENV_ID = "envs:lemur/Question-v0"


@dataclass(frozen=True)
class Graded:
    """What a reply is worth. The score is from 0 to 1, which is solved; any other is the grader's fault."""

    score: float
    answer: str | None = None
    """What was understood as the answer; None where the reply holds none."""
    note: str = ""
    """Why it is worth that, in a line: shown with the episode."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """By other rules, where there are several."""


Grade = Callable[[str, Mapping[str, Any]], Graded]


def question(
    benchmark: str,
    task: str,
    category: str,
    asked: str | Sequence[Message],
    grade: str,
    reference: Any,
    *,
    shots: str = "",
    raw: bool = False,
    prefill: str = "",
    choices: Sequence[str] = (),
    stop: Sequence[str] = (),
    gold: str | None = None,
    backend: str = "",
    data: str = "",
    cluster: str = "",
) -> Task:
    """A task of one turn.

    ``asked``: the question, or a conversation that ends in it; ``shots``: text before the question that many tasks
    have in common. ``raw``: all of it is one text to go on with. ``prefill``: what the reply begins with. ``choices``:
    to be weighed instead of a reply. ``stop``: where a reply ends, instead of where the benchmark says. ``reference``:
    any JSON value, for the grader. ``gold``: a reply that must score 1. ``backend``: of sandboxes, where any are used.
    ``data``: identifies the rows that the task is made of (``rows.identity``). ``cluster``: as of ``Task``.
    """
    options: dict[str, Any] = {"prompt": asked} if isinstance(asked, str) else {"messages": _plain(asked)}
    options |= {"grade": grade, "reference": reference}
    more = {"shots": shots, "raw": raw, "prefill": prefill, "choices": list(choices), "stop": list(stop)}
    options |= {name: value for name, value in more.items() if value}
    options |= {"backend": backend} if backend else {}
    options |= {"database_id": data} if data else {}
    options |= {"gold": gold} if gold is not None else {}
    return Task(benchmark, task, ENV_ID, category, options, max_turns=1, cluster=cluster)


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [message.to_json() for message in messages]


def continues_prompt(options: Mapping[str, Any]) -> bool:
    """Whether a reply goes on with what was begun for it; else it says everything itself. ``options``: of the task."""
    return bool(options.get("raw") or options.get("prefill"))


def cut_at(reply: str, stops: Sequence[str]) -> str:
    """``reply`` up to the first of ``stops`` in it."""
    places = [place for stop in stops if stop and (place := reply.find(stop)) >= 0]
    return reply[: min(places)] if places else reply


if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, goes_on="continues_prompt")
