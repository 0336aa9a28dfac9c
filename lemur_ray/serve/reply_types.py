"""What a model answers, as text and token ids: in pieces while it is generated, and whole.

Plain values; knows nothing of engines, tokenizers or protocols.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lemur_ray.agents.messages import FinishReason
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(frozen=True)
class Piece:
    """Some more of a reply. The last piece has ``finish_reason``."""

    index: int
    """Which of the requests it belongs to"""
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    cached_tokens: int
    """Prompt tokens that came from the cache"""
    logprobs: TokenLogprobs | None = None
    """Of ``tokens``, where they were asked for"""
    prompt_logprobs: TokenLogprobs | None = None
    """In the first piece, where they were asked for"""
    version: str = ""
    """Of the weights that all of the reply comes from"""


@dataclass
class Reply:
    """A whole reply."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    cached_tokens: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: TokenLogprobs | None = None
    version: str = ""
