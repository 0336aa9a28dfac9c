"""The engine for asyncio: a named model whose replies arrive as pieces of text.

Converts events of the engine's thread into pieces for the event loop, with one wake-up per step for all requests, cuts
replies at stop strings, and cancels those that are closed. Knows nothing of HTTP or of the OpenAI protocol."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from lemur_ray.agents.messages import FinishReason
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import ContextExceeded, EngineClosed, RequestFailed, RequestRefused
from lemur_ray.serve.engine.events import Event
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions, model_defaults
from lemur_ray.serve.grammar_matching import Grammars, Matching
from lemur_ray.serve.reply_types import Piece, Reply
from lemur_ray.serve.text_stream import TextStream
from lemur_ray.text.chat import Prompt
from lemur_ray.text.chat_template import Chat, ChatTemplate
from lemur_ray.text.marked_text import iter_texts
from lemur_ray.text.special_tokens import GENERATION, json_file
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tools_in_words import OPEN

_ENCODED_AT_ONCE = 8192
"""Most bytes of text encoded in the event loop (some milliseconds); longer texts are encoded in a thread."""


class TextEngine:
    """A named model on one engine, whose replies are pieces of text. Its coroutines belong to one event loop. name: of
    the model, in requests and answers."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, name: str):
        self.engine, self.tokenizer, self.name = engine, tokenizer, name
        self.created = int(time.time())
        self.stop_ids = tokenizer.stop_ids
        self.defaults = model_defaults(json_file(tokenizer.files, GENERATION))
        self._renders = ThreadPoolExecutor(1, "render")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: dict[int, asyncio.Queue[Event]] = {}

    @property
    def version(self) -> str:
        """Version of the weights of a new reply."""
        return self.engine.version

    @property
    def template(self) -> ChatTemplate:
        """The chat template. Raises TemplateMissing if the model has none, TemplateUnusable if it is invalid."""
        return template_of(self.tokenizer)

    @property
    def calls_are_bare(self) -> bool:
        """Whether the template shows tools without tags around calls. Raises TemplateMissing if the model has none,
        TemplateUnusable if it is invalid."""
        return self.template.knows_tools and OPEN not in self.template.source

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Prompt ids of a plain text, after those that the tokenizer adds before a text (BOS, if any). Special tokens
        spelled in it are ordinary text. The length is not checked."""
        return (*self.tokenizer.special.before, *self.tokenizer.encode(text))

    async def prompt(self, chat: Chat) -> tuple[int, ...]:
        """Token ids of a chat's prompt; long chats are rendered and encoded in threads. Raises TemplateError if the
        template cannot render it, and ContextExceeded, before encoding, if it cannot fit."""
        if self.template.quick and sum(map(len, iter_texts([chat.messages]))) <= _ENCODED_AT_ONCE:
            return self._encoder(chat)()
        # One after another, in a thread of their own, so that slow templates do not occupy the shared threads.
        encode = await asyncio.get_running_loop().run_in_executor(self._renders, self._encoder, chat)
        return await asyncio.to_thread(encode)

    def _encoder(self, chat: Chat) -> Callable[[], tuple[int, ...]]:
        """Render a chat; returns the function that encodes it."""
        prompt = Prompt(self.tokenizer, chat, self.template)
        self._check_fits(prompt.least_tokens(self.tokenizer.longest_token))
        return lambda: tuple(prompt.ids())

    async def text_prompt(self, text: str) -> tuple[int, ...]:
        """``encode_text`` for the event loop. Raises ContextExceeded for a text that cannot fit, before encoding it."""
        size = len(text.encode())
        self._check_fits(1 - (-size // self.tokenizer.longest_token))
        return self.encode_text(text) if size <= _ENCODED_AT_ONCE else await asyncio.to_thread(self.encode_text, text)

    def _check_fits(self, tokens: int) -> None:
        if self.tokenizer.keeps_text and tokens >= self.engine.context:
            raise ContextExceeded(tokens, 1, self.engine.context, at_least=True)

    def token_text(self, token: int) -> bytes:
        """Bytes of a token's text; b"" for special tokens, and for ids that only pad the model's vocabulary."""
        is_text = token < self.tokenizer.vocab_size and token not in self.tokenizer.special_ids
        return self.tokenizer.token_bytes(token) if is_text else b""

    def byte_stream(self, before: Sequence[int]) -> Callable[[int], bytes]:
        """A function to be called with each token after those in ``before``, in order; it returns the bytes that the
        token adds to the text."""
        return self.tokenizer.byte_stream(before)

    def spelling(self, token: int) -> bytes:
        """Bytes of a token in log-probabilities; for a special token those of its name, for an unused id "<unused
        ID>"."""
        known = token < self.tokenizer.vocab_size
        return self.tokenizer.token_bytes(token) if known else f"<unused {token}>".encode()

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a sequence of tokens; ids beyond the tokenizer's vocabulary are skipped."""
        return self.tokenizer.decode([i for i in tokens if i < self.tokenizer.vocab_size])

    async def constraint(self, grammar: str) -> Matching:
        """A constraint by a grammar in the format of llguidance. Raises GrammarError for an invalid one."""
        return await asyncio.to_thread(lambda: self._grammars.start(grammar))

    @cached_property
    def _grammars(self) -> Grammars:
        return Grammars(self.tokenizer)

    def generation(
        self, prompt: tuple[int, ...], max_tokens: int | None, sampling: SamplingOptions, **more: Any
    ) -> Generation:
        """A checked request for one reply. max_tokens None: the rest of the context. more: further fields of
        ``Generation``. prompt: token ids. sampling: options as HTTP requests have them. Raises ContextExceeded if
        prompt and reply are longer than the context, InvalidRequest for other values that the model cannot satisfy."""
        vocab_size, context = self.engine.config.vocab_size, self.engine.context
        limit = max(context - len(prompt), 1) if max_tokens is None else max_tokens
        request = Generation(prompt, limit, sampling.for_vocabulary(vocab_size), self.stop_ids, **more)
        request.check(vocab_size, context)
        return request

    def open(self, requests: Sequence[Generation], stop: Sequence[str] = (), *, whole: bool = False) -> "Replies":
        """Submit requests together; must be called in a running event loop. Raises what ``Engine.submit`` raises, and
        then none stays queued. stop: strings that end a reply, without being part of it. whole: the caller only uses
        ``Replies.collect``, so the engine sends no event for single tokens."""
        self._loop = asyncio.get_running_loop()
        replies = Replies(self, stop)
        try:
            for request in requests:
                number = self.engine.submit(request, self._listen, every_token=bool(stop) or not whole)
                self._queues[number] = replies.queue
                replies.add(number, request.prompt)
        except BaseException:
            replies.close()
            raise
        return replies

    @property
    def is_awaited(self) -> bool:
        """Whether any reply is unfinished. May be called from any thread."""
        return bool(self._queues)

    def forget(self, number: int) -> None:
        """Drop all later events of request ``number``."""
        self._queues.pop(number, None)

    def _listen(self, events: Sequence[Event]) -> None:
        """Pass a step's events to the event loop. Called in the engine's thread."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the server with it
            self._loop.call_soon_threadsafe(self._dispatch, events)

    def _dispatch(self, events: Sequence[Event]) -> None:
        for event in events:
            if (queue := self._queues.get(event.number)) is not None:
                queue.put_nowait(event)


class Replies:
    """The replies to requests that were submitted together. ``close`` must be called; it cancels unfinished ones."""

    def __init__(self, served: TextEngine, stop: Sequence[str]):
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        self._served, self._stop = served, stop
        self._open: dict[int, tuple[int, TextStream]] = {}
        self._total = 0

    def add(self, number: int, prompt: Sequence[int]) -> None:
        text = TextStream(self._served.tokenizer.text_stream(prompt), self._stop)
        self._open[number] = (self._total, text)
        self._total += 1

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield pieces of all replies as they come, until every reply is complete. Raises EngineClosed if the engine
        stops, RequestFailed or RequestRefused if it fails or refuses a request."""
        while self._open:
            event = await self.queue.get()
            if event.number in self._open:
                yield self._piece(event)

    async def collect(self) -> list[Reply]:
        """Wait for the end of all replies; returns them in order of their requests. Raises EngineClosed, RequestFailed
        or RequestRefused if one has no reply."""
        replies = [Reply() for _ in range(self._total)]
        async for piece in self.pieces():
            reply = replies[piece.index]
            reply.text += piece.text
            reply.tokens += piece.tokens
            reply.cached_tokens, reply.version = piece.cached_tokens, piece.version
            reply.logprobs += [piece.logprobs] if piece.logprobs else []
            reply.prompt_logprobs = piece.prompt_logprobs or reply.prompt_logprobs
            reply.finish_reason = piece.finish_reason or reply.finish_reason
        return replies

    def close(self) -> None:
        """Cancel unfinished replies; nothing happens if there are none."""
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
                # The engine may have generated another token by now, which is dropped; the request is cancelled.
                break
        if event.finish is not None:
            out += text.end()
        finish: FinishReason | None = "stop" if text.stopped or event.finish else None
        if event.finish == "length" and not text.stopped:
            finish = "length"
        if finish:
            self._forget(event.number, cancel=event.finish is None)
        logprobs = event.logprobs.part(0, used) if event.logprobs else None
        return Piece(
            index, out, event.tokens[:used], finish, event.cached, logprobs, event.prompt_logprobs, event.version
        )
