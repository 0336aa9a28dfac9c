"""Replies of a model as text and token ids, whole or in pieces. Knows nothing of engines, tokenizers or protocols."""

from dataclasses import dataclass, field

from lemur_ray.agents.messages import FinishReason
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(frozen=True)
class Piece:
    """A piece of a streamed reply. The last piece of a reply has ``finish_reason``."""

    index: int
    """Index of the request among those that were submitted together"""
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    cached_tokens: int
    """Prompt tokens that came from the cache"""
    logprobs: TokenLogprobs | None = None
    """Log-probabilities of ``tokens``, if requested"""
    prompt_logprobs: TokenLogprobs | None = None
    """Log-probabilities of the prompt's tokens, only in the first piece and if requested"""
    version: str = ""
    """Version of the weights that compute the whole reply, as of ``engine.events.Event``"""


@dataclass
class Reply:
    """A whole reply: the pieces of one request joined."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    cached_tokens: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: TokenLogprobs | None = None
    version: str = ""
