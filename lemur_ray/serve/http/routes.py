"""The OpenAI protocol over HTTP: chat completions, completions, models, and the pages of an operator.

Every error has OpenAI's body. Knows nothing of how the app is hosted: see ``uvicorn_server.py`` and ``on_ray``.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from lemur_ray.serve.engine.errors import (
    EngineClosed,
    EngineError,
    QueueFull,
    RequestFailed,
    RequestRefused,
)
from lemur_ray.serve.engine.generation import Generation, LogitBias
from lemur_ray.serve.grammar_matching import GrammarError
from lemur_ray.serve.http.api_key import KeyRequired
from lemur_ray.serve.http.asgi import ClientGone, EventStream, RequestIds, Unbroken, unless_gone
from lemur_ray.serve.http.chat_page import ChatPage
from lemur_ray.serve.http.chat_prompts import as_called, fitting, prompt_of
from lemur_ray.serve.http.metrics import Metrics
from lemur_ray.serve.http.request_body import check_lengths, check_model, read_body
from lemur_ray.serve.http.tokenizer_routes import tokenizer_routes
from lemur_ray.serve.openai.checked_requests import Common, parse_chat, parse_completion
from lemur_ray.serve.openai.described_routes import described
from lemur_ray.serve.openai.errors import ApiError, invalid
from lemur_ray.serve.openai.request_models import MAX_SESSION_CHARACTERS, ChatBody, CompletionBody
from lemur_ray.serve.openai.response_bodies import Answer
from lemur_ray.serve.text_engine import Replies, TextEngine

log = logging.getLogger(__name__)

Page = Callable[[], Awaitable[str]]
"""Text of a page of the operator"""

SESSION_HEADER = "x-session-id"
"""Also what Ray Serve routes a session to one replica by."""


def build_app(
    served: TextEngine, key_digest: bytes = b"", metrics: Metrics | None = None, page: Page | None = None
) -> FastAPI:
    """The app of one model; with a digest, for those who have the key (``api_key.py``).

    metrics: what it counts with, its own by default; page: what /metrics shows, by default these.
    """
    app = FastAPI(title="lemur-ray", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(ChatPage)
    if key_digest:
        app.add_middleware(KeyRequired, digest=key_digest)
    failed = _failed()
    app.add_middleware(Unbroken, answer=JSONResponse(failed.body(), failed.status))
    app.add_middleware(RequestIds)
    metrics = metrics or Metrics(served.engine)
    _handle_errors(app, metrics)

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Response:
        """The engine's thread lives."""
        if served.engine.failure is not None:
            raise _unavailable(f"the engine died: {served.engine.failure!r}")
        return JSONResponse({"status": "ok"})

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready")
    async def ready() -> Response:
        """Programs are compiled and requests are taken."""
        if not served.engine.ready.is_set() or not served.engine.accepting:
            raise _unavailable("the engine is not ready: it is starting, shutting down, or dead")
        return JSONResponse({"status": "ready", "model": served.name, "version": served.version})

    @app.get("/metrics")
    async def show_metrics() -> Response:
        text = metrics.render() if page is None else await page()
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [_model(served)]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        check_model(served, name)
        return JSONResponse(_model(served))

    @app.post("/v1/chat/completions", openapi_extra=described(ChatBody, served.name))
    async def chat(request: Request) -> Response:
        with fitting("messages"):
            body = await read_body(request, served.engine.context)
        call = parse_chat(body, served.defaults)
        check_model(served, call.common.model)
        _check_number(served, call.common, 1)
        prompt = await prompt_of(served, call.conversation)
        tools = as_called(served, call.tools)
        return await _respond(request, served, metrics, Answer(served, call.common, [prompt], True, tools=tools))

    @app.post("/v1/completions", openapi_extra=described(CompletionBody, served.name))
    async def complete(request: Request) -> Response:
        with fitting("prompt"):
            body = await read_body(request, served.engine.context)
            check_lengths(body, served.engine.context, served.engine.capacity)
        call = parse_completion(body, served.defaults)
        check_model(served, call.common.model)
        _check_number(served, call.common, len(call.prompts))
        with fitting("prompt"):
            prompts = [await served.text_prompt(p) if isinstance(p, str) else p for p in call.prompts]
        return await _respond(request, served, metrics, Answer(served, call.common, prompts, False, echo=call.echo))

    app.include_router(tokenizer_routes(served))
    return app


async def _respond(request: Request, served: TextEngine, metrics: Metrics, answer: Answer) -> Response:
    common = answer.common
    metrics.ignored(common.ignored)
    with fitting("messages" if answer.is_chat else "prompt"):
        session = request.headers.get(SESSION_HEADER, "")[:MAX_SESSION_CHARACTERS] or common.session_id
        generations = await _generations(served, answer, session)
    try:
        replies = served.open(generations, common.stop, whole=not common.stream)
    except (QueueFull, EngineClosed) as error:
        raise _refusal(error) from error
    if common.stream:
        return EventStream(_chunks(answer, replies, metrics), replies.close)
    begin = time.monotonic()
    try:
        done = await unless_gone(request.receive, replies.collect())
    except (EngineClosed, RequestFailed, RequestRefused) as error:
        raise _refusal(error) from error
    except ClientGone:
        return Response(status_code=499)
    finally:
        replies.close()
    metrics.served(time.monotonic() - begin)
    return JSONResponse(answer.whole(done))


async def _generations(served: TextEngine, answer: Answer, session: str) -> list[Generation]:
    """The engine's requests. Raises ContextExceeded, and ApiError 400 for ids and structures that mean nothing.

    session: conversation that this is a turn of; a request of several prompts is no turn of any.
    """
    common, engine = answer.common, served.engine
    vocab = engine.config.vocab_size
    bounds = [("prompt", (min(prompt), max(prompt))) for prompt in answer.prompts]
    bias = LogitBias(common.logit_bias)
    bounds += [("logit_bias", bias.bounds)] if bias else []
    for param, (lowest, highest) in bounds:
        if not 0 <= lowest <= highest < vocab:
            raise ApiError(400, f"{param} has token ids outside 0..{vocab - 1}", param=param, code="invalid_value")
    generations = []
    for prompt in answer.prompts:
        max_tokens = max(engine.context - len(prompt), 1) if common.max_tokens is None else common.max_tokens
        engine.check(len(prompt), max_tokens)
        one = Generation(
            prompt=prompt,
            max_tokens=max_tokens,
            stop_ids=served.stop_ids,
            # Keeping one token alone is the greedy choice, with its rule for ties.
            temperature=0.0 if common.top_k == 1 else common.temperature,
            # Keeping more tokens than there are is keeping all.
            top_k=0 if common.top_k >= vocab else common.top_k,
            top_p=common.top_p,
            min_p=common.min_p,
            presence_penalty=common.presence_penalty,
            frequency_penalty=common.frequency_penalty,
            logit_bias=bias,
            seed=common.seed,
            logprobs=common.logprobs is not None,
            prompt_logprobs=answer.echo and (common.logprobs is not None or not max_tokens),
        )
        generations += [replace(one, sample_index=i) for i in range(common.n)]
    if len(answer.prompts) == 1:
        generations[0] = replace(generations[0], session_id=session)
    if common.structure is not None:
        try:
            start = await served.constraint(common.structure.grammar)
        except GrammarError as error:
            raise invalid(common.structure.param, str(error)) from error
        generations = [replace(one, constraint=start.copy()) for one in generations]
    return generations


async def _chunks(answer: Answer, replies: Replies, metrics: Metrics) -> AsyncIterator[bytes]:
    """Server-sent events of all choices as they come."""
    base, begin = answer.head([], chunk=True), time.monotonic()
    usage = {"usage": None} if answer.common.include_usage else {}
    num_tokens, cached, last = 0, [0] * answer.num_choices, [begin] * answer.num_choices

    once = answer.prompt_ids()

    def events(chunks: Sequence[dict[str, Any]]) -> bytes:
        out = [{**base, "choices": [chunk], **usage} for chunk in chunks]
        if out:
            out[0].update(once)
            once.clear()
        return b"".join(map(_event, out))

    spoken = False
    try:
        async for piece in replies.pieces():
            now = time.monotonic()
            if not spoken:
                metrics.first_token(now - begin)
            elif last[piece.index] > begin:
                metrics.more_tokens(len(piece.tokens), now - last[piece.index])
            last[piece.index] = now
            base["system_fingerprint"] = piece.version
            if not spoken:  # not before, because only now it is certain which weights answer
                spoken = True
                yield events(answer.first_deltas())
            num_tokens += len(piece.tokens)
            cached[piece.index] = piece.cached_tokens
            if out := events(answer.deltas(piece)):
                yield out
    except (EngineClosed, RequestFailed, RequestRefused) as error:
        yield _event(_refusal(error).body())
        return
    except Exception:
        log.exception("a stream failed")
        yield _event(_failed().body())
        return
    if answer.common.include_usage:
        yield _event({**base, "choices": [], "usage": answer.usage(num_tokens, cached)})
    yield b"data: [DONE]\n\n"
    metrics.served(time.monotonic() - begin)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _model(served: TextEngine) -> dict[str, Any]:
    body = {"id": served.name, "object": "model", "created": served.created, "owned_by": "lemur-ray"}
    return {**body, "max_model_len": served.engine.context, "version": served.version}


def _check_number(served: TextEngine, common: Common, num_prompts: int) -> None:
    """Refuse what would not even fit an idle engine, so that nobody is told to try again."""
    if num_prompts * common.n > served.engine.capacity:
        asked = f"{num_prompts} prompts with n {common.n} are {num_prompts * common.n} replies"
        message = f"{asked}: this server takes at most {served.engine.capacity} in one request"
        raise ApiError(400, message, param="n" if num_prompts == 1 else "prompt", code="invalid_value")


def _unavailable(message: str) -> ApiError:
    return ApiError(503, message, kind="server_error", code="service_unavailable")


def _failed() -> ApiError:
    """The log has the traceback; the client learns only that it was not its fault."""
    return ApiError(500, "the server failed to answer; its log says why", kind="server_error")


def _refusal(error: EngineError) -> ApiError:
    if isinstance(error, QueueFull):
        headers = {"retry-after": str(error.retry_after_s)}
        return ApiError(429, str(error), kind="rate_limit_error", code="rate_limit_exceeded", headers=headers)
    if isinstance(error, RequestRefused):
        return ApiError(400, str(error), code="invalid_value")
    if isinstance(error, RequestFailed):
        return ApiError(500, str(error), kind="server_error")
    return _unavailable(str(error))


def _handle_errors(app: FastAPI, metrics: Metrics) -> None:
    """OpenAI's body for what is refused, by the framework too."""

    def response(error: ApiError) -> Response:
        metrics.refused(error.status)
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return response(error)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        messages = {404: "Unknown request URL", 405: "Wrong method for this URL"}
        message = f"{messages.get(error.status_code, error.detail)}: {request.method} {request.url.path}"
        return response(ApiError(error.status_code, message, headers=error.headers))
