"""The OpenAI protocol over HTTP: chat completions and completions, and the app that all routes belong to.

Every error has OpenAI's body. Knows nothing of how the app is hosted: see ``uvicorn_server.py`` and ``on_ray``."""

import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from lemur_ray.serve.engine.errors import EngineError
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.grammar_matching import GrammarError
from lemur_ray.serve.http.api_key import KeyRequired
from lemur_ray.serve.http.asgi import ClientGone, EventStream, RequestIds, Unbroken, unless_gone
from lemur_ray.serve.http.chat_page import ChatPage
from lemur_ray.serve.http.chat_prompts import chat_prompt, reply_tools
from lemur_ray.serve.http.error_answers import FAILED, api_error, errors_about, handle_errors
from lemur_ray.serve.http.metrics import Metrics
from lemur_ray.serve.http.operator_routes import MetricsPage, operator_routes
from lemur_ray.serve.http.request_body import check_lengths, check_model, read_body
from lemur_ray.serve.http.tokenizer_routes import tokenizer_routes
from lemur_ray.serve.openai.body_fields import described
from lemur_ray.serve.openai.checked_requests import Common, parse_chat, parse_completion
from lemur_ray.serve.openai.errors import ApiError, invalid
from lemur_ray.serve.openai.request_models import MAX_SESSION_CHARACTERS, ChatBody, CompletionBody
from lemur_ray.serve.openai.response_bodies import Answer
from lemur_ray.serve.text_engine import Replies, TextEngine

log = logging.getLogger(__name__)

SESSION_HEADER = "x-session-id"
"""Header with the session id, by which Ray Serve routes a session to one replica."""


def build_app(
    served: TextEngine, key_digest: bytes = b"", metrics: Metrics | None = None, page: MetricsPage | None = None
) -> FastAPI:
    """The FastAPI app of one model. key_digest: SHA-256 of the key that clients must send (``api_key.py``); b"": no
    key. metrics: counters of its requests, by default new. page: makes the text of /metrics, by default ``metrics``."""
    app = FastAPI(title="lemur-ray", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(ChatPage)
    if key_digest:
        app.add_middleware(KeyRequired, digest=key_digest)
    app.add_middleware(Unbroken, answer=JSONResponse(FAILED.body(), FAILED.status))
    app.add_middleware(RequestIds)
    metrics = metrics or Metrics(served.engine)
    handle_errors(app, metrics)
    app.include_router(operator_routes(served, metrics, page))

    @app.post("/v1/chat/completions", openapi_extra=described(ChatBody, served.name))
    async def chat(request: Request) -> Response:
        with errors_about("messages"):
            body = await read_body(request, served.engine.context)
        call = parse_chat(body, served.defaults)
        check_model(served, call.common.body.model)
        _check_number(served, call.common, 1)
        prompt = await chat_prompt(served, call.conversation)
        tools = reply_tools(served, call.conversation.tools)
        return await _respond(request, served, metrics, Answer(served, call.common, [prompt], True, tools=tools))

    @app.post("/v1/completions", openapi_extra=described(CompletionBody, served.name))
    async def complete(request: Request) -> Response:
        with errors_about("prompt"):
            body = await read_body(request, served.engine.context)
            check_lengths(body, served.engine.context, served.engine.capacity)
        call = parse_completion(body, served.defaults)
        check_model(served, call.common.body.model)
        _check_number(served, call.common, len(call.prompts))
        with errors_about("prompt"):
            prompts = [await served.text_prompt(p) if isinstance(p, str) else p for p in call.prompts]
        return await _respond(request, served, metrics, Answer(served, call.common, prompts, False, echo=call.echo))

    app.include_router(tokenizer_routes(served))
    return app


async def _respond(request: Request, served: TextEngine, metrics: Metrics, answer: Answer) -> Response:
    common = answer.common
    metrics.ignored(common.ignored)
    with errors_about("messages" if answer.is_chat else "prompt"):
        session_id = request.headers.get(SESSION_HEADER, "")[:MAX_SESSION_CHARACTERS] or common.body.prompt_cache_key
        generations = await _generations(served, answer, session_id)
    try:
        replies = served.open(generations, common.body.stop, whole=not common.body.stream)
    except EngineError as error:
        raise api_error(error) from error
    if common.body.stream:
        return EventStream(_chunks(answer, replies, metrics), replies.close)
    begin = time.monotonic()
    try:
        done = await unless_gone(request.receive, replies.collect())
    except EngineError as error:
        raise api_error(error) from error
    except ClientGone:
        return Response(status_code=499)
    finally:
        replies.close()
    metrics.served(time.monotonic() - begin)
    return JSONResponse(answer.whole(done))


async def _generations(served: TextEngine, answer: Answer, session_id: str) -> list[Generation]:
    """The engine's requests, ``n`` for each prompt. session_id: of the conversation; ignored if there are several
    prompts. Raises ContextExceeded and InvalidRequest, and ApiError 400 for a structure that has no meaning."""
    common, generations = answer.common, list[Generation]()
    logprobs = common.logprobs is not None
    for prompt in answer.prompts:
        one = served.generation(
            prompt,
            common.max_tokens,
            common.sampling,
            logprobs=logprobs,
            prompt_logprobs=answer.echo and (logprobs or common.max_tokens == 0),
        )
        generations += [replace(one, sample_index=i) for i in range(common.body.n)]
    if len(answer.prompts) == 1:
        generations[0] = replace(generations[0], session_id=session_id)
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
    usage = {"usage": None} if answer.common.body.include_usage else {}
    num_tokens, cached, last = 0, [0] * answer.num_choices, [begin] * answer.num_choices

    once = answer.prompt_ids()

    def events(chunks: Sequence[dict[str, Any]]) -> bytes:
        out = [{**base, "choices": [chunk], **usage} for chunk in chunks]
        if out:
            out[0].update(once)
            once.clear()
        return b"".join(map(_event, out))

    has_begun = False
    try:
        async for piece in replies.pieces():
            now = time.monotonic()
            if not has_begun:
                metrics.first_token(now - begin)
            elif last[piece.index] > begin:
                metrics.more_tokens(len(piece.tokens), now - last[piece.index])
            last[piece.index] = now
            base["system_fingerprint"] = piece.version
            if not has_begun:  # the version of the weights is not known before
                has_begun = True
                yield events(answer.first_deltas())
            num_tokens += len(piece.tokens)
            cached[piece.index] = piece.cached_tokens
            if out := events(answer.deltas(piece)):
                yield out
    except EngineError as error:
        yield _event(api_error(error).body())
        return
    except Exception:
        log.exception("a stream failed")
        yield _event(FAILED.body())
        return
    if answer.common.body.include_usage:
        yield _event({**base, "choices": [], "usage": answer.usage(num_tokens, cached)})
    yield b"data: [DONE]\n\n"
    metrics.served(time.monotonic() - begin)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _check_number(served: TextEngine, common: Common, num_prompts: int) -> None:
    """Raise ApiError 400 if prompts times ``n`` are more replies than even an idle engine accepts."""
    num = num_prompts * common.body.n
    if num > served.engine.capacity:
        replies = f"{num_prompts} prompts with n {common.body.n} are {num} replies"
        message = f"{replies}: this server takes at most {served.engine.capacity} in one request"
        raise ApiError(400, message, param="n" if num_prompts == 1 else "prompt", code="invalid_value")
