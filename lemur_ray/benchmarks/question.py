"""Tasks of one question and one reply, and the verdict on that reply.

A grader is a module's function, named in the task as ``module:function``, so that any worker can import it:
``grade(reply, options) -> Graded``, where ``options`` are the task's."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.openai_wire import cut
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.text.tools_in_words import describe_tools, tool_function

ENV_ID = "envs:lemur/Question-v0"


@dataclass(frozen=True)
class Graded:
    """A grader's verdict on a reply. ``score``: 0 to 1, where 1 is solved; other values are an ``env_error``."""

    score: float
    answer: str | None = None
    """The answer that was read from the reply; None if there is none"""
    note: str = ""
    """Reason for the score in one line, for the episode's page"""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores by further grading rules, by name of the rule"""


STRICT, FLEXIBLE, RELEASED = "strict", "flexible", "released"
"""Names of readings in ``Graded.scores``: the form that the prompt asks for, as published; the answer as a person reads
it; the reading of the script released with Lemur."""

Grade = Callable[[str, Mapping[str, Any]], Graded]
cut_at = cut
"""``cut_at(reply, stops)``: the reply up to the first of the stop strings in it."""


@dataclass(frozen=True)
class QuestionDetails:
    """Optional fields of a question: how it is asked, its reference reply, and what its grader needs."""

    shots: str = ""
    """Text before the question that many tasks share (worked examples); the ledger stores it once"""
    raw: bool = False
    """Whether prompt and shots are one text that the model continues, instead of a conversation"""
    prefill: str = ""
    """Beginning of the reply, which the model continues"""
    choices: Sequence[str] = ()
    """Candidate replies: the model writes none, and the likeliest candidate is its reply"""
    stop: Sequence[str] = ()
    """Stop strings of the reply, instead of the benchmark's"""
    gold: str | None = None
    """A reference reply, which must score 1"""
    backend: str = ""
    """Sandbox backend in which the grader runs programs; empty: it needs none"""
    data: str = ""
    """Digest of the rows that the task comes from (``rows.files_digest``)"""
    cluster: str = ""
    """Group of dependent tasks, as in ``Task``"""
    tools: Sequence[Mapping[str, Any]] = ()
    """Tools that the model may call, in OpenAI's format: calls stand in the reply (``text.tools_in_words``)"""
    native: bool = True
    """Whether tools are offered natively; else they are described in the system message"""
    candidates: Sequence[str] = ()
    """Answers from which a random baseline draws"""


def question(
    benchmark: str,
    task: str,
    category: str,
    prompt: str | Sequence[Message] = "",
    grade: str = "",
    reference: Any = None,
    details: QuestionDetails | None = None,
    **old: Any,
) -> Task:
    """A ``Task`` with one turn. ``task``: its id; ``category``: group for sampling and tables; ``prompt``: the
    question, or a conversation that ends with it; ``grade``: the grader as ``module:function``; ``reference``: JSON
    value for the grader; ``old``: fields of ``details`` as keywords (deprecated)."""
    if old:
        warnings.warn(
            f"question(): {', '.join(sorted(old))} are now fields of details=QuestionDetails(...), asked= is prompt=",
            DeprecationWarning,
            stacklevel=2,
        )
    prompt = old.pop("asked", prompt)
    d = replace(details or QuestionDetails(), **old)
    if d.tools and not d.native:
        messages = [Message("user", prompt)] if isinstance(prompt, str) else prompt
        prompt = describe_tools(messages, list(map(tool_function, d.tools)))
    options: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"messages": _json(prompt)}
    options |= {"grade": grade, "reference": reference}
    optional = {"shots": d.shots, "raw": d.raw, "prefill": d.prefill, "choices": list(d.choices), "stop": list(d.stop)}
    optional |= {"tools": list(d.tools) if d.native else []}
    optional |= {"candidates": list(d.candidates), "backend": d.backend, "database_id": d.data}
    options |= {name: value for name, value in optional.items() if value}
    options |= {"gold": d.gold} if d.gold is not None else {}
    return Task(benchmark, task, ENV_ID, category, options, max_turns=1, cluster=d.cluster)


def _json(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [message.to_json() for message in messages]


def continues_prompt(options: Mapping[str, Any]) -> bool:
    """Whether the model continues a text (``raw``) or a begun reply (``prefill``), by a ``question``'s options."""
    return bool(options.get("raw") or options.get("prefill"))


def by_category(
    episodes: Iterable[Episode], value: Callable[[Episode], float] = lambda one: one.outcome is Outcome.SOLVED
) -> dict[str, list[float]]:
    """The value of each scored episode, by default 1.0 if it is solved and else 0.0, by category in the order of first
    appearance; {} if none is scored."""
    values: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            values.setdefault(episode.category, []).append(float(value(episode)))
    return values


if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, goes_on="continues_prompt")
