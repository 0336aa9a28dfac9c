"""Whether a tokenizer is lossless, and the maximum bytes of a token: together a lower bound on the tokens of a text.

Derived from the steps that a tokenizer's file declares; an unknown step counts as lossy."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

_KEEP = {"ByteLevel", "Metaspace", "Digits", "UnicodeScripts", "FixedLength"}
"""Types of pre-tokenizers that keep every character."""
_CHARACTER_BYTES = 4
"""Maximum bytes of one character, for which one unknown token stands if they are not fused."""


def is_lossless(backend: Backend) -> bool:
    """Whether the tokens of any text represent all of its bytes: no lossy normalisation, no unknown tokens."""
    raw = [json.loads(step.__getstate__()) if step else None for step in (backend.normalizer, backend.pre_tokenizer)]
    return _normalizer_keeps(raw[0]) and _pre_tokenizer_keeps(raw[1]) and _model_keeps(backend, raw[1])


def longest_source(spelled: Sequence[bytes], tokens: Sequence[str]) -> int:
    """Maximum bytes of text that one token stands for, at least 4. spelled: bytes of each token; tokens: spellings."""
    longest = max((len(piece) for piece in spelled), default=1)
    marked = max((len(token.encode()) for token in tokens if "▁" in token), default=1)
    return max(longest, marked, _CHARACTER_BYTES)


def _normalizer_keeps(step: dict[str, Any] | None) -> bool:
    if step is None or step["type"] == "Prepend":
        return True
    if step["type"] == "Sequence":
        return all(map(_normalizer_keeps, step["normalizers"]))
    if step["type"] == "Replace" and "String" in step["pattern"]:
        return len(step["content"].encode()) >= len(step["pattern"]["String"].encode())
    return False


def _pre_tokenizer_keeps(step: dict[str, Any] | None) -> bool:
    if step is None or step["type"] in _KEEP:
        return True
    if step["type"] == "Sequence":
        return all(map(_pre_tokenizer_keeps, step["pretokenizers"]))
    return step["type"] in ("Split", "Punctuation") and step["behavior"] != "Removed"


def _model_keeps(backend: Backend, pre_tokenizer: dict[str, Any] | None) -> bool:
    model: Any = backend.model
    if type(model).__name__ not in ("BPE", "Unigram"):
        return False
    if getattr(model, "byte_fallback", False) and all(
        model.token_to_id(f"<0x{b:02X}>") is not None for b in range(256)
    ):
        return True
    by_bytes = pre_tokenizer is not None and '"ByteLevel"' in json.dumps(pre_tokenizer)
    return by_bytes and all(model.token_to_id(c) is not None for c in pre_tokenizers.ByteLevel.alphabet())
