"""The engine as asyncio sees it: a model with a name, whose replies arrive as pieces of text.

Turns events of the engine's thread into pieces for the event loop, one wake-up per step for all requests together; cuts
at stop strings; replies that nobody reads any more are cancelled. Knows nothing of HTTP or of the OpenAI protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property, partial

from lemur_ray.agents.messages import FinishReason, Message
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import ContextExceeded, EngineClosed, RequestFailed, RequestRefused
from lemur_ray.serve.engine.events import Event
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.grammar_matching import Grammars, Matching
from lemur_ray.serve.replies import Piece, Reply
from lemur_ray.serve.text_stream import TextStream
from lemur_ray.text.chat import encode_prompt
from lemur_ray.text.tokenizer import Tokenizer

_ENCODED_AT_ONCE = 8192
"""Bytes of text that are encoded in the event loop (some milliseconds); more goes to a thread."""


class TextEngine:
    """One model on one engine, for one event loop."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, name: str):
        self.engine, self.tokenizer, self.name = engine, tokenizer, name
        self.created = int(time.time())
        self.stop_ids = frozenset((tokenizer.eos_id, tokenizer.im_end_id))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[int, asyncio.Queue[Event]] = {}

    @property
    def version(self) -> str:
        """Of the weights that a reply would come from now."""
        return self.engine.version

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Prompt ids of a conversation."""
        return tuple(encode_prompt(self.tokenizer, messages))

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Prompt ids of plain text: BOS first, as in every document of the training data."""
        return (self.tokenizer.bos_id, *self.tokenizer.encode(text))

    async def chat_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """``encode_chat`` for the event loop. Raises ContextExceeded for what cannot fit, before it is encoded."""
        # Every turn has its two ChatML tokens besides its text.
        return await self._encoded([m.content.strip() for m in messages], 2, partial(self.encode_chat, messages))

    async def text_prompt(self, text: str) -> tuple[int, ...]:
        """``encode_text`` for the event loop. Raises ContextExceeded for what cannot fit, before it is encoded."""
        return await self._encoded([text], 1, partial(self.encode_text, text))

    async def _encoded(
        self, texts: Sequence[str], tokens_each: int, encode: Callable[[], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Ids of a prompt made of these texts, each with ``tokens_each`` tokens or more around it."""
        sizes = [len(text.encode()) for text in texts]
        fewest = sum(tokens_each + -(-size // self.tokenizer.longest_token) for size in sizes)
        if self.tokenizer.keeps_text and fewest >= self.engine.context:
            raise ContextExceeded(fewest, 1, self.engine.context, at_least=True)
        return encode() if sum(sizes) <= _ENCODED_AT_ONCE else await asyncio.to_thread(encode)

    def token_text(self, token: int) -> bytes:
        """Bytes of a token's text: none of a special's, nor of a row of the head that no token belongs to (padding)."""
        return b"" if token in self.hidden_ids else self.tokenizer.token_bytes(token)

    @cached_property
    def hidden_ids(self) -> frozenset[int]:
        """Tokens without text."""
        padding = range(self.tokenizer.vocab_size, self.engine.config.vocab_size)
        return self.tokenizer.special_ids.union(padding)

    def spelling(self, token: int) -> bytes:
        """Bytes of a token where tokens are named: a special one by its name."""
        known = token < self.tokenizer.vocab_size
        return self.tokenizer.token_bytes(token) if known else f"<unused {token}>".encode()

    def text(self, tokens: Sequence[int]) -> str:
        """Text of tokens."""
        return b"".join(map(self.token_text, tokens)).decode(errors="replace")

    async def constraint(self, grammar: str) -> Matching:
        """What holds a reply to a grammar, as llguidance reads it. Raises GrammarError where that has no meaning."""
        return await asyncio.to_thread(lambda: self._grammars.start(grammar))

    @cached_property
    def _grammars(self) -> Grammars:
        return Grammars(self.tokenizer)

    def text_stream(self, stop: Sequence[str]) -> TextStream:
        """Text of one reply."""
        return TextStream(self.token_text, stop=stop)

    def open(self, requests: Sequence[Generation], stop: Sequence[str] = (), *, whole: bool = False) -> Replies:
        """Submit requests together, in a running event loop. Raises what ``Engine.submit`` raises; then none is queued.

        whole: the replies are wanted in one piece (the engine wakes nobody for single tokens that nobody waits for).
        """
        self._loop = asyncio.get_running_loop()
        replies = Replies(self, stop)
        try:
            for request in requests:
                number = self.engine.submit(request, self._listen, every_token=bool(stop) or not whole)
                self._queues[number] = replies.queue
                replies.add(number)
        except BaseException:
            replies.close()
            raise
        return replies

    def forget(self, number: int) -> None:
        """Events of this request are dropped from now on."""
        self._queues.pop(number, None)

    def _listen(self, events: Sequence[Event]) -> None:
        """In the engine's thread: hand a step's events to the event loop."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._dispatch, events)
        except RuntimeError:
            # The loop is closed: the server is gone, and with it everybody who could read this.
            return

    def _dispatch(self, events: Sequence[Event]) -> None:
        for event in events:
            if (queue := self._queues.get(event.number)) is not None:
                queue.put_nowait(event)


class Replies:
    """Replies on their way. Must be closed; closing cancels what is not finished."""

    def __init__(self, served: TextEngine, stop: Sequence[str]):
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        self._served, self._stop = served, stop
        self._open: dict[int, tuple[int, TextStream]] = {}
        self._total = 0

    def add(self, number: int) -> None:
        self._open[number] = (self._total, self._served.text_stream(self._stop))
        self._total += 1

    async def pieces(self) -> AsyncIterator[Piece]:
        """All pieces until every reply is complete. Raises EngineClosed, RequestFailed or RequestRefused otherwise."""
        while self._open:
            event = await self.queue.get()
            if event.number in self._open:
                yield self._piece(event)

    async def collect(self) -> list[Reply]:
        """Wait for the end of all replies."""
        replies = [Reply() for _ in range(self._total)]
        async for piece in self.pieces():
            reply = replies[piece.index]
            reply.text += piece.text
            reply.tokens += piece.tokens
            reply.cached_tokens, reply.version = piece.cached_tokens, piece.version
            reply.scores += [piece.scores] if piece.scores else []
            reply.prompt_scores = piece.prompt_scores or reply.prompt_scores
            reply.finish_reason = piece.finish_reason or reply.finish_reason
        return replies

    def close(self) -> None:
        """Cancel what is not finished. Closing twice is harmless."""
        for number in list(self._open):
            self._forget(number, cancel=True)

    def _forget(self, number: int, *, cancel: bool) -> None:
        self._served.forget(number)
        del self._open[number]
        if cancel:
            self._served.engine.cancel(number)

    def _piece(self, event: Event) -> Piece:
        if event.finish == "error":
            self._forget(event.number, cancel=False)
            if event.refusal:
                raise RequestRefused(event.refusal)
            if self._served.engine.accepting:
                raise RequestFailed("the request failed in the engine; the server's log says why")
            raise EngineClosed("the engine stopped before the reply was complete")
        index, text = self._open[event.number]
        out, used = "", 0
        for token in event.tokens:
            out += text.push(token)
            used += 1
            if text.stopped:
                # The engine may be a token further by now: it is told to stop, and that token is nobody's.
                break
        finish: FinishReason | None = None
        if event.finish is not None and not text.stopped:
            out += text.end()
            finish = "length" if event.finish == "length" else "stop"
        if text.stopped:
            finish = "stop"
        if finish:
            self._forget(event.number, cancel=event.finish is None)
        scores = event.scores.part(0, used) if event.scores else None
        return Piece(index, out, event.tokens[:used], finish, event.cached, scores, event.prompt_scores, event.version)
