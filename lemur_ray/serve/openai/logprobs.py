"""Log-probabilities in the two forms of OpenAI's protocol. Knows nothing of requests or of how they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lemur_ray.serve.engine.token_logprobs import TokenLogprobs

TokenBytes = Callable[[int], bytes]
"""Maps a token to its bytes; a special token to its spelling"""


def chat_logprobs(
    spell: TokenBytes, tokens: Sequence[int], logprobs: TokenLogprobs, alternatives: int
) -> dict[str, Any]:
    """``logprobs`` of a choice of a chat completion."""
    content = []
    for i, token in enumerate(tokens):
        others = zip(logprobs.top_ids[i, :alternatives].tolist(), logprobs.top_logprobs[i].tolist(), strict=False)
        named = [_entry(spell(other), logprob) for other, logprob in others]
        content.append({**_entry(spell(token), float(logprobs.logprob[i])), "top_logprobs": named})
    return {"content": content, "refusal": None}


def _entry(raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": raw.decode(errors="backslashreplace"), "logprob": logprob, "bytes": list(raw)}


class CompletionLogprobs:
    """``logprobs`` of a choice of a completion, piece by piece; text offsets continue from the last piece."""

    def __init__(self, spell: TokenBytes, text_bytes: TokenBytes, alternatives: int):
        """text_bytes: bytes that the next token adds to the text, none for a special one; called once per token."""
        self._spell, self._text_bytes, self._alternatives, self._offset = spell, text_bytes, alternatives, 0

    def __call__(self, tokens: Sequence[int], logprobs: TokenLogprobs) -> dict[str, Any]:
        """Lists of one entry per token. The first token of a prompt has no logprobs: null."""
        body: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for i, token in enumerate(tokens):
            logprob = float(logprobs.logprob[i])
            known = logprob == logprob
            body["tokens"].append(_text(self._spell(token)))
            body["token_logprobs"].append(logprob if known else None)
            body["top_logprobs"].append(self._top(token, logprob, logprobs.part(i, i + 1)) if known else None)
            body["text_offset"].append(self._offset)
            # Characters, each counted where it begins.
            self._offset += sum(byte & 0xC0 != 0x80 for byte in self._text_bytes(token))
        return body

    def _top(self, token: int, logprob: float, logprobs: TokenLogprobs) -> dict[str, float]:
        """Log-probabilities of the likeliest tokens and of ``token`` by text; where texts are equal, by token id."""
        others = zip(
            logprobs.top_ids[0, : self._alternatives].tolist(), logprobs.top_logprobs[0].tolist(), strict=False
        )
        top: dict[str, float] = {}
        holders: dict[str, int] = {}
        for other, value in [*others, (token, logprob)]:
            text = _text(self._spell(other))
            name = text if holders.setdefault(text, other) == other else f"token_id:{other}"
            top[name] = value
        return top


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
