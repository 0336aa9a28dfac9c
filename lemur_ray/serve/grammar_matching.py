"""Constraints of replies by a grammar: the tokens that may come next, computed by llguidance.

Knows nothing of how a request prescribes a grammar."""

from functools import cached_property

import llguidance
import numpy as np

from lemur_ray.serve.engine.generation import UnsatisfiableConstraint
from lemur_ray.text.tokenizer import Tokenizer


class GrammarError(ValueError):
    """An invalid grammar, or a model that cannot use any; the message gives the reason."""


class Grammars:
    """Compiles grammars into constraints for one tokenizer. May be used from any thread."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._obstacle = _obstacle(tokenizer)
        if not self._obstacle:
            wrapped = llguidance.TokenizerWrapper(_Vocabulary(tokenizer))
            self._tokenizer = llguidance.LLTokenizer(wrapped, eos_token=_ends(tokenizer))

    def start(self, grammar: str) -> "Matching":
        """The constraint of a new reply by ``grammar``, text in llguidance's format (may take a second). Raises
        GrammarError for an invalid grammar, or if the tokenizer cannot be used with any."""
        if self._tokenizer is None:
            raise GrammarError(f"cannot be used with this model: {self._obstacle}")
        problem = llguidance.LLMatcher.validate_grammar(grammar, self._tokenizer)
        if problem and not problem.startswith("WARNING"):
            raise GrammarError(f"cannot be used: {problem.strip()[:500]}")
        return Matching(llguidance.LLMatcher(self._tokenizer, grammar, log_level=0))


def _obstacle(tokenizer: Tokenizer) -> str:
    """Reason why a tokenizer cannot be used with grammars; empty if it can."""
    if not tokenizer.spells_by_token:
        return "its tokenizer's decoder does not spell text token by token"
    return "" if tokenizer.stop_ids else "its folder names no token that ends a text (eos_token)"


def _ends(tokenizer: Tokenizer) -> list[int]:
    """Tokens that end a reply: the end of a turn, the end of a text, then all other stop ids."""
    first = [i for i in (tokenizer.im_end_id, tokenizer.eos_id) if i is not None]
    return [*first, *sorted(tokenizer.stop_ids.difference(first))]


class _Vocabulary:
    """A tokenizer with the interface that llguidance expects."""

    def __init__(self, tokenizer: Tokenizer):
        self.eos_token_id, self.bos_token_id = _ends(tokenizer)[0], tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_ids)
        self._encode = tokenizer.encode_inside

    def __call__(self, text: str | bytes) -> list[int]:
        """Encode a text as it is encoded behind another text, into ids that spell its bytes."""
        text = text if isinstance(text, str) else text.decode()
        ids = self._encode(text)
        return ids if b"".join(self.tokens[i] for i in ids) == text.encode() else self._encode_greedily(text.encode())

    def _encode_greedily(self, data: bytes) -> list[int]:
        """Ids of the longest matching tokens one after another, for a tokenizer that normalises text."""
        ids, at = [], 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            token = next((i for end in ends if (i := self._by_bytes.get(data[at:end])) is not None), None)
            if token is None:
                break  # llguidance handles the rest by itself
            ids.append(token)
            at += len(self.tokens[token])
        return ids

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        special = set(self.special_token_ids)
        return {piece: i for i, piece in enumerate(self.tokens) if piece and i not in special}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)


class Matching:
    """A ``generation.Constraint``: the state of one reply's match with its grammar."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def copy(self) -> "Matching":
        """An independent copy, for another reply."""
        return Matching(self._matcher.deep_copy())

    def allowed(self) -> np.ndarray:
        """``Constraint.allowed``. Raises UnsatisfiableConstraint if the grammar exceeds a limit of llguidance."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return words

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise UnsatisfiableConstraint(f"the structure cannot be held to: {self._matcher.get_error().strip()[:300]}")
