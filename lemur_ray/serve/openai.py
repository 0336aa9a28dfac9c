"""The OpenAI protocol over HTTP: chat completions, completions, models, and the pages of an operator.

Every error has OpenAI's body. Knows nothing of how the app is hosted: see ``local.py`` and ``app.py``.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from lemur_ray.serve.asgi import ClientGone, EventStream, RequestIds, unless_gone
from lemur_ray.serve.auth import KeyRequired
from lemur_ray.serve.body import check_model, read_json
from lemur_ray.serve.errors import ContextExceeded, EngineClosed, EngineError, QueueFull, RequestFailed
from lemur_ray.serve.front import Front, Piece, Replies, Reply
from lemur_ray.serve.metrics import Metrics
from lemur_ray.serve.page import ChatPage
from lemur_ray.serve.requests import ApiError, Common, parse_chat, parse_completion
from lemur_ray.serve.scheduler import Generation
from lemur_ray.serve.tokenize import tokenizer_routes


def build_app(front: Front, key_digest: bytes = b"") -> FastAPI:
    """The app of one model; with a digest, for those who have the key (``serve.auth``)."""
    app = FastAPI(title="lemur-ray", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(ChatPage)
    if key_digest:
        app.add_middleware(KeyRequired, digest=key_digest)
    app.add_middleware(RequestIds)
    _handle_errors(app)
    metrics = Metrics(front.engine)

    @app.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        """The engine's thread lives."""
        if front.engine.failure is not None:
            raise _unavailable(f"the engine died: {front.engine.failure!r}")
        return JSONResponse({"status": "ok"})

    @app.api_route("/ready", methods=["GET", "HEAD"])
    async def ready() -> Response:
        """Programs are compiled and requests are taken."""
        if not front.engine.ready.is_set() or not front.engine.accepting:
            raise _unavailable("the engine is not ready: it is starting, shutting down, or dead")
        return JSONResponse({"status": "ready", "model": front.name, "version": front.version})

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return PlainTextResponse(metrics.render(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [_model(front)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        check_model(front, name)
        return JSONResponse(_model(front))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        call = parse_chat(await read_json(request))
        check_model(front, call.common.model)
        _check_number(front, call.common, 1)
        with _fitting("messages"):
            prompt = await front.chat_prompt(call.messages)
        return await _answer(request, front, metrics, call.common, [prompt], is_chat=True)

    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        call = parse_completion(await read_json(request))
        check_model(front, call.common.model)
        _check_number(front, call.common, len(call.prompts))
        with _fitting("prompt"):
            prompts = [await front.text_prompt(p) if isinstance(p, str) else p for p in call.prompts]
        return await _answer(request, front, metrics, call.common, prompts, is_chat=False)

    app.include_router(tokenizer_routes(front))
    return app


@dataclass(frozen=True)
class Shape:
    """The parts that all bodies of one answer share, and how they differ between the two endpoints."""

    front: Front
    common: Common
    prompts: list[tuple[int, ...]]
    is_chat: bool
    number: str
    created: int

    def head(self, chunk: bool) -> dict[str, Any]:
        kind = "text_completion" if not self.is_chat else "chat.completion.chunk" if chunk else "chat.completion"
        body = {"id": self.number, "object": kind, "created": self.created, "model": self.front.name}
        return {**body, "system_fingerprint": self.front.version}

    def choice(self, index: int, reply: Reply) -> dict[str, Any]:
        text = {"message": {"role": "assistant", "content": reply.text}} if self.is_chat else {"text": reply.text}
        common = {"index": index, "finish_reason": reply.finish_reason, "logprobs": None, "token_ids": reply.tokens}
        return {**common, **text}

    def delta(self, index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        text = {"delta": delta} if self.is_chat else {"text": delta.get("content", "")}
        return {"index": index, "finish_reason": finish_reason, "logprobs": None, **text}

    def usage(self, num_tokens: int, cached: int) -> dict[str, Any]:
        """Totals over all choices; each prompt counts once."""
        prompt = sum(map(len, self.prompts))
        counts = {"prompt_tokens": prompt, "completion_tokens": num_tokens, "total_tokens": prompt + num_tokens}
        return {**counts, "prompt_tokens_details": {"cached_tokens": cached}}


async def _answer(
    request: Request, front: Front, metrics: Metrics, common: Common, prompts: list[tuple[int, ...]], *, is_chat: bool
) -> Response:
    metrics.ignored(common.ignored)
    with _fitting("messages" if is_chat else "prompt"):
        generations = [_generation(front, common, prompt, choice) for prompt in prompts for choice in range(common.n)]
    number = ("chatcmpl-" if is_chat else "cmpl-") + secrets.token_hex(12)
    shape = Shape(front, common, prompts, is_chat, number, int(time.time()))
    try:
        replies = front.open(generations, common.stop, whole=not common.stream)
    except (QueueFull, EngineClosed) as error:
        raise _refusal(error) from error
    if common.stream:
        return EventStream(_chunks(shape, replies, metrics), replies.close)
    begin = time.monotonic()
    try:
        done = await unless_gone(request.receive, replies.collect())
    except (EngineClosed, RequestFailed) as error:
        raise _refusal(error) from error
    except ClientGone:
        return Response(status_code=499)
    finally:
        replies.close()
    metrics.served(time.monotonic() - begin)
    body = shape.head(chunk=False)
    body["choices"] = [shape.choice(i, reply) for i, reply in enumerate(done)]
    # The first choice of a prompt found what was cached; the others may have found what the first one computed.
    body["usage"] = shape.usage(sum(len(r.tokens) for r in done), sum(r.cached_tokens for r in done[:: common.n]))
    if common.return_prompt_ids:
        body["prompt_token_ids"] = list(prompts[0]) if len(prompts) == 1 else [list(p) for p in prompts]
    return JSONResponse(body)


def _generation(front: Front, common: Common, prompt: tuple[int, ...], choice: int) -> Generation:
    """The engine's request. Raises ContextExceeded, and ApiError 400 where it names ids that do not exist."""
    vocab, left = front.engine.config.vocab_size, front.engine.context - len(prompt)
    if any(not 0 <= i < vocab for i in prompt):
        raise ApiError(400, f"prompt has token ids outside 0..{vocab - 1}", param="prompt", code="invalid_value")
    max_tokens = max(left, 1) if common.max_tokens is None else common.max_tokens
    front.engine.check(len(prompt), max_tokens)
    return Generation(
        prompt=prompt,
        max_tokens=max_tokens,
        stop_ids=front.stop_ids,
        # Keeping one token alone is the greedy choice, with its rule for ties.
        temperature=0.0 if common.top_k == 1 else common.temperature,
        # Keeping more tokens than there are is keeping all.
        top_k=0 if common.top_k >= vocab else common.top_k,
        top_p=common.top_p,
        seed=common.seed,
        choice=choice,
    )


async def _chunks(shape: Shape, replies: Replies, metrics: Metrics) -> AsyncIterator[bytes]:
    """Server-sent events of all choices as they come."""
    base, begin = shape.head(chunk=True), time.monotonic()
    usage = {"usage": None} if shape.common.include_usage else {}
    num_tokens, cached = 0, [0] * (len(shape.prompts) * shape.common.n)

    def choices(*items: dict[str, Any]) -> bytes:
        return b"".join(_event({**base, "choices": [item], **usage}) for item in items)

    try:
        if shape.is_chat:
            yield choices(*(shape.delta(i, {"role": "assistant", "content": ""}) for i in range(len(cached))))
        async for piece in replies.pieces():
            if not num_tokens:
                metrics.first_token(time.monotonic() - begin)
            num_tokens += len(piece.tokens)
            cached[piece.index] = piece.cached_tokens
            if out := choices(*_deltas(shape, piece)):
                yield out
    except (EngineClosed, RequestFailed) as error:
        yield _event(_refusal(error).body())
        return
    if shape.common.include_usage:
        yield _event({**base, "choices": [], "usage": shape.usage(num_tokens, sum(cached[:: shape.common.n]))})
    yield b"data: [DONE]\n\n"
    metrics.served(time.monotonic() - begin)


def _deltas(shape: Shape, piece: Piece) -> list[dict[str, Any]]:
    deltas = [shape.delta(piece.index, {"content": piece.text})] if piece.text else []
    return deltas + ([shape.delta(piece.index, {}, piece.finish_reason)] if piece.finish_reason else [])


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _model(front: Front) -> dict[str, Any]:
    body = {"id": front.name, "object": "model", "created": front.created, "owned_by": "lemur-ray"}
    return {**body, "max_model_len": front.engine.context, "version": front.version}


def _check_number(front: Front, common: Common, num_prompts: int) -> None:
    """Refuse what would not even fit an idle engine, so that nobody is told to try again."""
    if num_prompts * common.n > front.engine.capacity:
        asked = f"{num_prompts} prompts with n {common.n} are {num_prompts * common.n} replies"
        message = f"{asked}: this server takes at most {front.engine.capacity} in one request"
        raise ApiError(400, message, param="n" if num_prompts == 1 else "prompt", code="invalid_value")


@contextlib.contextmanager
def _fitting(param: str) -> Iterator[None]:
    """What does not fit the context is a 400 about this parameter."""
    try:
        yield
    except ContextExceeded as error:
        raise ApiError(400, str(error), param=param, code="context_length_exceeded") from error


def _unavailable(message: str) -> ApiError:
    return ApiError(503, message, kind="server_error", code="service_unavailable")


def _refusal(error: EngineError) -> ApiError:
    if isinstance(error, QueueFull):
        headers = {"retry-after": str(error.retry_after_s)}
        return ApiError(429, str(error), kind="rate_limit_error", code="rate_limit_exceeded", headers=headers)
    if isinstance(error, RequestFailed):
        return ApiError(500, str(error), kind="server_error")
    return _unavailable(str(error))


def _handle_errors(app: FastAPI) -> None:
    """OpenAI's body for everything that goes wrong, the framework's own errors included."""

    def response(error: ApiError) -> Response:
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return response(error)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        messages = {404: "Unknown request URL", 405: "Wrong method for this URL"}
        message = f"{messages.get(error.status_code, error.detail)}: {request.method} {request.url.path}"
        return response(ApiError(error.status_code, message, headers=error.headers))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # The framework logs the traceback; the client learns only that it was not its fault.
        return response(ApiError(500, "the server failed to answer; its log says why", kind="server_error"))
