"""Options of benchmarks of single questions: whose protocol, and whether the model converses or goes on with a text.

Knows no benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lemur_ray.benchmarks.contract import EvaluationRequest, all_options
from lemur_ray.host.renamed_names import renamed_names


@dataclass(frozen=True)
class PromptForm:
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
class Protocol(PromptForm):
    """How a question is put."""

    mode: Literal["standard", "lemur"] = "standard"
    """standard, or lemur: as the scripts that were released with Lemur do it, faults included."""


@dataclass(frozen=True)
class OneProtocol(PromptForm):
    """Of a benchmark of which no script was released, so that there is one way to play it."""

    GONE: ClassVar[frozenset[str]] = frozenset({"mode"})
    """Options of earlier versions, which decided nothing: they are read over in what was stored."""


def single_protocol_identity(options: OneProtocol, request: EvaluationRequest) -> dict[str, Any]:
    """The identity of a benchmark that is played in one way: as it was while it had a mode that changed nothing."""
    return {**all_options(options, request), "mode": "standard"}


def version_by_mode(options: Protocol) -> int:
    """The version of a benchmark whose scores changed once in the mode lemur alone."""
    return 2 if options.mode == "lemur" else 1


def version_by_prefill(options: Protocol) -> int:
    """The same where they changed for chat models alone whose replies nobody begins."""
    return 1 if options.raw or options.prefill else version_by_mode(options)


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, Form="PromptForm", of_one_protocol="single_protocol_identity", changed_as_released="version_by_mode",
        changed_unbegun="version_by_prefill",
    )  # fmt: skip
