"""Options of question sets: the protocol, and whether the model chats or continues a text.

Knows no benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lemur_ray.benchmarks.contract import EvaluationRequest, all_options


@dataclass(frozen=True)
class PromptForm:
    """Form of the prompt."""

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
class Protocol(PromptForm):
    """Protocol of a question set."""

    mode: Literal["standard", "lemur"] = "standard"
    """standard, or lemur: as the scripts that were released with Lemur do it, faults included."""


@dataclass(frozen=True)
class OneProtocol(PromptForm):
    """Options of a benchmark without a released script, which has one protocol."""

    GONE: ClassVar[frozenset[str]] = frozenset({"mode"})
    """Options of earlier versions without effect, which are ignored in stored files"""


def single_protocol_identity(options: OneProtocol, request: EvaluationRequest) -> dict[str, Any]:
    """Identity of a benchmark with one protocol, with the constant mode of earlier versions."""
    return {**all_options(options, request), "mode": "standard"}


def version_by_mode(options: Protocol) -> int:
    """Version of a benchmark whose scores changed once, in mode lemur only."""
    return 2 if options.mode == "lemur" else 1


def version_by_prefill(options: Protocol) -> int:
    """The same if they changed only for chat models without a prefill."""
    return 1 if options.raw or options.prefill else version_by_mode(options)
