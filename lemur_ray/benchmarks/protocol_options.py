"""Options of question sets: the protocol, and whether the model chats or continues a text."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lemur_ray.benchmarks.contract import EvaluationRequest, all_options


@dataclass(frozen=True)
class PromptForm:
    """Form of the prompt: a chat message, or a text to continue."""

    form: Literal["chat", "base"] = "chat"
    """chat: the question is a user's message. base: it is a text that the model continues, through the endpoint's
    /completions."""
    prefill: bool = False
    """Send the beginning of a chat model's reply, as the protocol prescribes. The endpoint must continue such a reply
    (vLLM and SGLang do); otherwise the score measures nothing."""

    @property
    def raw(self) -> bool:
        return self.form == "base"


@dataclass(frozen=True)
class Tools:
    """Options of a benchmark whose model calls tools."""

    tools: Literal["native", "words"] = "native"
    """native: tools are a field of the request, which the endpoint must support. words: they are described in the
    system message, and calls stand in the reply."""


@dataclass(frozen=True)
class Protocol(PromptForm):
    """Options of a question set with two protocols: the usual one, and that of the scripts released with Lemur."""

    mode: Literal["standard", "lemur"] = "standard"
    """standard: the usual protocol of the field. lemur: that of the scripts released with Lemur, with their faults."""


@dataclass(frozen=True)
class OneProtocol(PromptForm):
    """Options of a question set with one protocol, because no script for it was released with Lemur."""

    GONE: ClassVar[frozenset[str]] = frozenset({"mode"})
    """Names of options of earlier versions, ignored in stored files"""


def single_protocol_identity(options: OneProtocol, request: EvaluationRequest) -> dict[str, Any]:
    """``Benchmark.identity`` for ``OneProtocol``: all options, and the constant mode that earlier versions stored."""
    return {**all_options(options, request), "mode": "standard"}


def version_by_mode(options: Protocol) -> int:
    """``Benchmark.version`` for a benchmark whose scores in mode lemur changed between releases: 2 in that mode, else
    1."""
    return 2 if options.mode == "lemur" else 1


def version_by_prefill(options: Protocol) -> int:
    """``Benchmark.version`` for a benchmark whose scores changed between releases only in mode lemur with chat prompts
    and without prefill: 2 with such options, else 1."""
    return 1 if options.raw or options.prefill else version_by_mode(options)
