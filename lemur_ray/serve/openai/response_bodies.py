"""Response bodies of OpenAI's protocol, whole or streamed, as plain values. Knows nothing of HTTP."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from lemur_ray.serve.engine.token_logprobs import TokenLogprobs, joined
from lemur_ray.serve.openai.checked_requests import Common
from lemur_ray.serve.openai.tools import Call, CallStream, Toolbox
from lemur_ray.serve.reply_types import Piece, Reply

Prompt = tuple[int, ...]


class Served(Protocol):
    """The served model, as far as response bodies need it: its name, its stop ids and the text of its tokens."""

    name: str
    stop_ids: frozenset[int]

    def byte_stream(self, before: Sequence[int]) -> Callable[[int], bytes]:
        """A function to be called with each token after those in ``before``, in order; it returns the bytes that the
        token adds to the text."""

    def spelling(self, token: int) -> bytes:
        """Bytes that stand for a token in log-probabilities; for a special token those of its name."""

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a sequence of tokens."""


@dataclass
class Answer:
    """The answer to one request, of which it makes the bodies: whole, or piece by piece. It has ``n`` choices
    for each prompt, and keeps the state of each while it is streamed. ``tools``: those offered; ``echo``: repeat the
    prompt before the reply; ``created``: seconds since 1970."""

    served: Served
    common: Common
    prompts: list[Prompt]
    is_chat: bool
    tools: Toolbox | None = None
    echo: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    _choices: dict[int, _Choice] = field(default_factory=dict)

    @cached_property
    def _number(self) -> str:
        return ("chatcmpl-" if self.is_chat else "cmpl-") + secrets.token_hex(12)

    @property
    def num_choices(self) -> int:
        return len(self.prompts) * self.common.body.n

    def head(self, versions: Iterable[str], *, chunk: bool) -> dict[str, Any]:
        """Fields common to all bodies: id, object, created, model, system_fingerprint. versions: of the weights of its
        replies, several after an update, joined by "+". chunk: whether the body is part of a stream."""
        kind = "text_completion" if not self.is_chat else "chat.completion.chunk" if chunk else "chat.completion"
        body = {"id": self._number, "object": kind, "created": self.created, "model": self.served.name}
        return {**body, "system_fingerprint": "+".join(dict.fromkeys(versions))}

    def whole(self, replies: Sequence[Reply]) -> dict[str, Any]:
        """The whole body of an answer that is not streamed. replies: one for each choice, in order."""
        choices = [self._choice(i).whole(reply) for i, reply in enumerate(replies)]
        tokens = sum(len(reply.tokens) for reply in replies)
        # Only the first choice of a prompt counts: the others may reuse what the first one computed.
        usage = self.usage(tokens, [reply.cached_tokens for reply in replies])
        head = self.head([reply.version for reply in replies], chunk=False)
        return {**head, "choices": choices, "usage": usage, **self.prompt_ids()}

    def prompt_ids(self) -> dict[str, Any]:
        """``prompt_token_ids`` for a whole body or a stream's first chunk; {} unless requested. With several prompts it
        is a list of lists."""
        if not self.common.body.return_token_ids:
            return {}
        ids = [list(prompt) for prompt in self.prompts]
        return {"prompt_token_ids": ids[0] if len(ids) == 1 else ids}

    def first_deltas(self) -> list[dict[str, Any]]:
        """The first stream chunks of a chat, one for each choice, with the role; [] for a completion."""
        role = {"role": "assistant", "content": ""}
        return [_chunk(i, {"delta": role}) for i in range(self.num_choices)] if self.is_chat else []

    def deltas(self, piece: Piece) -> list[dict[str, Any]]:
        """Stream chunks for one piece of a reply; [] if its text is held back, as it may begin a tool call."""
        return self._choice(piece.index).deltas(piece)

    def usage(self, num_tokens: int, cached: Sequence[int]) -> dict[str, Any]:
        """``usage`` with totals over all choices, in which each prompt counts once. num_tokens: generated ones; cached:
        prompt tokens from the cache, for every choice."""
        prompt = sum(map(len, self.prompts))
        counts = {"prompt_tokens": prompt, "completion_tokens": num_tokens, "total_tokens": prompt + num_tokens}
        return {**counts, "prompt_tokens_details": {"cached_tokens": sum(cached[:: self.common.body.n])}}

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice(self, index, self.prompts[index // self.common.body.n])
        return self._choices[index]


class _Choice:
    """One choice of an answer, whole or piece by piece."""

    def __init__(self, answer: Answer, index: int, prompt: Prompt):
        self._index, self._is_chat, self._served = index, answer.is_chat, answer.served
        self._calls = CallStream(answer.tools) if answer.tools else None
        self._alternatives, self._with_ids = answer.common.logprobs, answer.common.body.return_token_ids
        text_bytes = answer.served.byte_stream(() if answer.echo else prompt)
        self._completion = CompletionLogprobs(answer.served.spelling, text_bytes, answer.common.logprobs or 0)
        self._echoed = prompt if answer.echo else None

    def whole(self, reply: Reply) -> dict[str, Any]:
        reply_logprobs = joined(reply.logprobs) if reply.logprobs else None
        echoed = self._unsent_prompt()
        logprobs = self._logprobs(reply.tokens, reply_logprobs, reply.prompt_logprobs)
        text, calls, finish = reply.text, list[Call](), reply.finish_reason
        if self._calls is not None:
            text, calls = self._calls.push(reply.text)
            text += self._calls.end(cut=self._is_cut(finish, reply.tokens))
        body: dict[str, Any] = {"index": self._index, "finish_reason": finish, "logprobs": logprobs}
        body["token_ids"] = reply.tokens
        if not self._is_chat:
            return {**body, "text": echoed + text}
        if logprobs is None and self._alternatives is not None:
            body["logprobs"] = {"content": [], "refusal": None}  # requested, for a reply without tokens
        body["message"] = {"role": "assistant", "content": text or None if calls else text}
        if calls:
            body["message"]["tool_calls"] = [call.to_json() for call in calls]
            body["finish_reason"] = "tool_calls" if finish == "stop" else finish
        return body

    def deltas(self, piece: Piece) -> list[dict[str, Any]]:
        echoed = self._unsent_prompt()
        logprobs = self._logprobs(piece.tokens, piece.logprobs, piece.prompt_logprobs)
        text, calls, done = echoed + piece.text, list[Call](), self._calls.num_calls if self._calls else 0
        if self._calls is not None:
            text, calls = self._calls.push(text)
            if piece.finish_reason:
                text += self._calls.end(cut=self._is_cut(piece.finish_reason, piece.tokens))
        finish: str | None = piece.finish_reason
        if self._calls is not None and self._calls.num_calls and finish == "stop":
            finish = "tool_calls"
        chunks = []
        if text or logprobs is not None:
            chunks.append(_chunk(self._index, self._text_fields(text), logprobs=logprobs))
        for number, call in enumerate(calls, done):
            chunks += [_chunk(self._index, {"delta": {"tool_calls": [part]}}) for part in _parts(number, call)]
        if finish:
            chunks.append(_chunk(self._index, {"delta": {}} if self._is_chat else {"text": ""}, finish))
        if self._with_ids:
            # Tokens whose text is held back have a chunk as well.
            chunks = chunks or [_chunk(self._index, self._text_fields(""))]
            chunks = [{**chunk, "token_ids": [] if i else list(piece.tokens)} for i, chunk in enumerate(chunks)]
        return chunks

    def _is_cut(self, finish: str, tokens: Sequence[int]) -> bool:
        """Whether a limit or a stop string ended a reply, rather than the model. tokens: its last ones."""
        return finish == "length" or not (tokens and tokens[-1] in self._served.stop_ids)

    def _text_fields(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}} if self._is_chat else {"text": text}

    def _unsent_prompt(self) -> str:
        """Text of the prompt if it must be echoed and has not been yet, else empty."""
        return "" if self._echoed is None else self._served.text(self._echoed)

    def _logprobs(
        self, tokens: Sequence[int], logprobs: TokenLogprobs | None, prompt_logprobs: TokenLogprobs | None
    ) -> dict[str, Any] | None:
        echoed, self._echoed = self._echoed, None
        if self._alternatives is None:
            return None
        if self._is_chat:
            # The token that ends the turn is not part of it.
            count = len(tokens) - bool(tokens and tokens[-1] in self._served.stop_ids)
            if logprobs is None or not count:
                return None
            return chat_logprobs(self._served.spelling, tokens[:count], logprobs, self._alternatives)
        parts = [s for s in (prompt_logprobs if echoed is not None else None, logprobs) if s is not None]
        return self._completion([*(echoed or ()), *tokens], joined(parts)) if parts else None


def _parts(number: int, call: Call) -> list[dict[str, Any]]:
    """The two parts of a call in a stream: name, then arguments."""
    whole = call.to_json()
    head = {**whole, "index": number, "function": {"name": call.name, "arguments": ""}}
    return [head, {"index": number, "function": {"arguments": call.arguments}}]


def _chunk(
    index: int, fields: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"index": index, "finish_reason": finish, "logprobs": logprobs, **fields}


TokenBytes = Callable[[int], bytes]
"""Function from a token id to its bytes, for a special token those of its spelling"""


def chat_logprobs(
    spell: TokenBytes, tokens: Sequence[int], logprobs: TokenLogprobs, alternatives: int
) -> dict[str, Any]:
    """Value of ``logprobs`` of a chat completion's choice. spell: bytes of a token. logprobs: of ``tokens``;
    alternatives: how many likeliest tokens are listed for each."""
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
        """spell: bytes of a token. text_bytes: bytes that the next token adds to the text, none for a special one;
        called once per token in order. alternatives: how many likeliest tokens are listed for each."""
        self._spell, self._text_bytes, self._alternatives, self._offset = spell, text_bytes, alternatives, 0

    def __call__(self, tokens: Sequence[int], logprobs: TokenLogprobs) -> dict[str, Any]:
        """Value of ``logprobs`` for the next tokens: lists with one entry per token; null for the first token of a
        prompt, which has no probability."""
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
        ids = logprobs.top_ids[0, : self._alternatives].tolist()
        others = zip(ids, logprobs.top_logprobs[0].tolist(), strict=False)
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
