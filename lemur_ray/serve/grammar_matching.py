"""Replies that must have a form: a grammar and a tokenizer become what the engine is told before every token.

The work is llguidance's. Knows nothing of how a request asks for a form.
"""

from __future__ import annotations

from functools import cached_property

import llguidance
import numpy as np

from lemur_ray.serve.engine.generation import UnsatisfiableConstraint
from lemur_ray.text.tokenizer import Tokenizer


class GrammarError(ValueError):
    """A grammar that has no meaning; the message says why."""


class Grammars:
    """Starts constraints for one tokenizer. From any thread."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._why_not = _why_not(tokenizer)
        if not self._why_not:
            wrapped = llguidance.TokenizerWrapper(_Vocabulary(tokenizer))
            self._tokenizer = llguidance.LLTokenizer(wrapped, eos_token=_ends(tokenizer))

    def start(self, grammar: str) -> Matching:
        """A constraint at its beginning (may take a second). Raises GrammarError where the grammar has no meaning."""
        if self._tokenizer is None:
            raise GrammarError(f"cannot be used with this model: {self._why_not}")
        wrong = llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer)
        if wrong and not wrong.startswith("WARNING"):
            raise GrammarError(f"cannot be used: {wrong.strip()[:500]}")
        return Matching(llguidance.LLMatcher(self._tokenizer, grammar, log_level=0))


def _why_not(tokenizer: Tokenizer) -> str:
    if not tokenizer.spells_by_token:
        return "its tokenizer's decoder does not spell text token by token"
    return "" if tokenizer.stop_ids else "its folder names no token that ends a text (eos_token)"


def _ends(tokenizer: Tokenizer) -> list[int]:
    """Tokens that end a reply: that of a turn first, then that of a text."""
    first = [i for i in (tokenizer.im_end_id, tokenizer.eos_id) if i is not None]
    return [*first, *sorted(tokenizer.stop_ids.difference(first))]


class _Vocabulary:
    """Our tokenizer as llguidance wants to see it."""

    def __init__(self, tokenizer: Tokenizer):
        self.eos_token_id, self.bos_token_id = _ends(tokenizer)[0], tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_ids)
        self._encode = tokenizer.encode_inside

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids whose bytes are those of the text, which stands behind another."""
        text = text if isinstance(text, str) else text.decode()
        ids = self._encode(text)
        return ids if b"".join(self.tokens[i] for i in ids) == text.encode() else self._spelled(text.encode())

    def _spelled(self, data: bytes) -> list[int]:
        """Of a tokenizer that changes texts: the longest token that fits, then the next."""
        ids, at = [], 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            found = next((i for end in ends if (i := self._by_bytes.get(data[at:end])) is not None), None)
            if found is None:
                break  # llguidance goes on with the rest by itself
            ids.append(found)
            at += len(self.tokens[found])
        return ids

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        special = set(self.special_token_ids)
        return {piece: i for i, piece in enumerate(self.tokens) if piece and i not in special}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)


class Matching:
    """How far one reply has come (``generation.Constraint``)."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def copy(self) -> Matching:
        """The same state for another reply."""
        return Matching(self._matcher.deep_copy())

    def allowed(self) -> np.ndarray:
        """See ``Constraint``. Raises UnsatisfiableConstraint where the grammar has become too much for llguidance."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise UnsatisfiableConstraint(f"the structure cannot be held to: {self._matcher.get_error().strip()[:300]}")
