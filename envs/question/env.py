"""Environment of a single question: the model replies once, and the reply is graded."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.messages import Message
from lemur_ray.benchmarks.question import Grade, Graded, cut_at


class QuestionEnv(TextEnv):
    """One question, one reply, and its grade. Options of ``reset``, as ``benchmarks.question.question`` builds them:

    - ``prompt`` (the question) with ``shots`` before it, or ``messages`` (a conversation that ends in the question);
    - ``raw``, ``prefill``, ``choices``, ``stop``, ``tools`` (offered natively): how it is asked;
    - ``grade`` ("module:function") and its ``reference``; ``backend`` of the grader's sandboxes;
    - ``candidates``: answers from which a random baseline draws, by default ``choices``;
    - ``gold``: a reply that scores 1, the expert's hint; ``database_id`` (not read: identifies the data)."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"prompt", "shots", "messages", "raw", "prefill", "choices", "stop", "grade", "reference", "backend", "gold"}
        | {"database_id", "candidates", "tools"}
    )
    default_max_steps: ClassVar[int] = 1

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self._options = options
        self._stops = tuple(options.get("stop", ()))
        self._grade = grader(str(options.get("grade", "")))
        messages = _messages(options)
        before, last = messages[:-1], messages[-1]
        shared = len(options.get("shots", "")) or sum(len(message.content) for message in before)
        self._ask = {
            name: options[name] for name in ("raw", "prefill", "choices", "stop", "tools") if options.get(name)
        }
        self._ask |= {"before": [message.to_json() for message in before]} if before else {}
        self._ask |= {"shared": shared} if shared else {}
        return Opening(last.content)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "ask": self._ask}

    def respond(self, reply: str) -> Turn:
        graded = self._grade(cut_at(reply, self._stops), self._options)
        if isinstance(graded, Graded) and not reply.strip() and graded.score:
            graded = replace(graded, score=0.0, note="an empty reply never scores")
        if not isinstance(graded, Graded):
            raise TypeError(f"{self._options['grade']} answered {type(graded).__name__}: expected Graded")
        if not isinstance(graded.score, int | float) or not 0 <= graded.score <= 1:
            raise ValueError(f"{self._options['grade']} gave the score {graded.score!r}: expected a number from 0 to 1")
        shown = "nothing" if graded.answer is None else repr(graded.answer)
        note = f"{graded.note}\n" if graded.note else ""
        return Turn(
            f"{note}Understood: {shown}. Score: {graded.score:g}",
            graded.answer,
            valid=graded.answer is not None,
            solved=graded.score >= 1,
            finished=True,
            score=graded.score,
            scores=graded.scores or None,
        )

    def hints(self) -> dict[str, Any]:
        """For scripted policies: "admissible", the choices or candidates (else one empty reply); "expert", the gold
        reply, if any."""
        answers = self._options.get("choices") or self._options.get("candidates") or [""]
        hints: dict[str, Any] = {"admissible": list(answers)}
        return hints | ({"expert": self._options["gold"]} if "gold" in self._options else {})


def _messages(options: Mapping[str, Any]) -> list[Message]:
    """The messages of the prompt; the last is the question. Raises ValueError for malformed options."""
    prompt, messages = options.get("prompt"), options.get("messages")
    if (prompt is None) == (messages is None):
        raise ValueError("a question has either a prompt or messages")
    if prompt is not None:
        if not isinstance(prompt, str) or not isinstance(options.get("shots", ""), str):
            raise ValueError("options prompt and shots: expected texts")
        return [Message("user", options.get("shots", "") + prompt)]
    parsed = [Message.from_json(message) for message in messages or ()]
    if not parsed or parsed[-1].role != "user":
        raise ValueError("option messages: expected a conversation that ends in a user's message")
    return parsed


@cache
def grader(name: str) -> Grade:
    """Import a grading function by its name ``module:function``; cached. Raises ValueError if it cannot be imported."""
    module, _, function = name.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"option grade: {name!r} cannot be found ({error}); expected module:function") from error
    grade: Grade = loaded
    return grade
