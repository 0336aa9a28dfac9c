"""Replies that must have a form: a grammar and a tokenizer become what the engine is told before every token.

The work is llguidance's. Knows nothing of how a request asks for a form.
"""

from __future__ import annotations

import llguidance
import numpy as np

from lemur_ray.serve.engine.generation import CannotBeMet
from lemur_ray.text.tokenizer import Tokenizer


class GrammarError(ValueError):
    """A grammar that has no meaning; the message says why."""


class Grammars:
    """Starts constraints for one tokenizer. From any thread."""

    def __init__(self, tokenizer: Tokenizer):
        wrapped = llguidance.TokenizerWrapper(_Vocabulary(tokenizer))
        ends = [tokenizer.im_end_id, tokenizer.eos_id]
        self._tokenizer = llguidance.LLTokenizer(wrapped, eos_token=ends)

    def start(self, grammar: str) -> Matching:
        """A constraint at its beginning (may take a second). Raises GrammarError where the grammar has no meaning."""
        wrong = llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer)
        if wrong and not wrong.startswith("WARNING"):
            raise GrammarError(f"cannot be used: {wrong.strip()[:500]}")
        return Matching(llguidance.LLMatcher(self._tokenizer, grammar, log_level=0))


class _Vocabulary:
    """Our tokenizer as llguidance wants to see it."""

    def __init__(self, tokenizer: Tokenizer):
        self.eos_token_id, self.bos_token_id = tokenizer.im_end_id, tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_ids)
        self._encode = tokenizer.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode())


class Matching:
    """How far one reply has come (``generation.Constraint``)."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def copy(self) -> Matching:
        """The same state for another reply."""
        return Matching(self._matcher.deep_copy())

    def allowed(self) -> np.ndarray:
        """See ``Constraint``. Raises CannotBeMet where the grammar has become too much for llguidance."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise CannotBeMet(f"the structure cannot be held to: {self._matcher.get_error().strip()[:300]}")
