"""Options of benchmarks of single questions: whose protocol, and whether the model converses or goes on with a text.

Knows no benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lemur_ray.benchmarks.contract import Asked, whole


@dataclass(frozen=True)
class Form:
    """Whether a model converses."""

    form: Literal["chat", "base"] = "chat"
    """chat: the question is a user's turn. base: it is a text that the model goes on with, through the endpoint's
    /completions."""
    prefill: bool = False
    """Begin a chat model's reply for it, as the protocol has it. The endpoint must go on with a begun reply (vLLM and
    SGLang do); where it does not, this measures nothing."""

    @property
    def raw(self) -> bool:
        return self.form == "base"


@dataclass(frozen=True)
class Protocol(Form):
    """How a question is put."""

    mode: Literal["standard", "lemur"] = "standard"
    """standard, or lemur: as the scripts that were released with Lemur do it, faults included."""


@dataclass(frozen=True)
class OneProtocol(Form):
    """Of a benchmark of which no script was released, so that there is one way to play it."""

    GONE: ClassVar[frozenset[str]] = frozenset({"mode"})
    """Options of earlier versions, which decided nothing: they are read over in what was stored."""


def of_one_protocol(options: OneProtocol, asked: Asked) -> dict[str, Any]:
    """The identity of a benchmark that is played in one way: as it was while it had a mode that changed nothing."""
    return {**whole(options, asked), "mode": "standard"}


def changed_as_released(options: Protocol) -> int:
    """The version of a benchmark whose scores changed once in the mode lemur alone."""
    return 2 if options.mode == "lemur" else 1


def changed_unbegun(options: Protocol) -> int:
    """The same where they changed for chat models alone whose replies nobody begins."""
    return 1 if options.raw or options.prefill else changed_as_released(options)
