"""The tokenizer over HTTP, at the server's root: /tokenizer_info, /tokenize and /detokenize.

As evaluation clients ask for them (lm-eval's ``local-completions`` with ``tokenizer_backend=remote``): special tokens
that are spelled out in a text are special tokens here, as everywhere at Hugging Face, while the text of a request for
completions never is. Long texts are encoded beside the event loop, one after another, so that they leave threads to
the prompts of other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from lemur_ray.serve.http.request_body import check_model, read_json
from lemur_ray.serve.openai.described_routes import described
from lemur_ray.serve.openai.errors import invalid
from lemur_ray.serve.openai.request_models import DetokenizeBody, TokenizeBody
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat import TEMPLATE
from lemur_ray.text.tokenizer import BOS
from lemur_ray.weights.hf_config import tokenizer_config

T = TypeVar("T")

_AT_ONCE = 8192
"""Characters or ids that are worked on in the event loop (some milliseconds)."""


def tokenizer_routes(served: TextEngine) -> APIRouter:
    """The three endpoints of one model."""
    router = APIRouter()
    tokenizer, one_at_a_time = served.tokenizer, asyncio.Lock()

    async def beside(size: int, work: Callable[[], T]) -> T:
        if size <= _AT_ONCE:
            return work()
        async with one_at_a_time:
            return await asyncio.to_thread(work)

    @router.get("/tokenizer_info")
    async def info() -> Response:
        # Who renders the template knows only the messages, so BOS is spelled out in it.
        own = {"chat_template": BOS + TEMPLATE, "model_max_length": served.engine.context}
        return JSONResponse({**tokenizer_config(), **own})

    @router.post("/tokenize", openapi_extra=described(TokenizeBody, served.name))
    async def tokenize(request: Request) -> Response:
        body = TokenizeBody.of(await read_json(request))
        _check(body, served)
        encode = tokenizer.encode if body.split_special_tokens else tokenizer.encode_marked
        tokens = await beside(len(body.prompt), lambda: encode(body.prompt))
        if body.add_special_tokens:
            tokens = [tokenizer.bos_id, *tokens]
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": served.engine.context})

    @router.post("/detokenize", openapi_extra=described(DetokenizeBody, served.name))
    async def detokenize(request: Request) -> Response:
        body = DetokenizeBody.of(await read_json(request))
        _check(body, served)
        tokens, vocab_size = body.tokens, served.engine.config.vocab_size
        if any(not 0 <= i < vocab_size for i in tokens):
            raise invalid("tokens", f"has ids outside 0..{vocab_size - 1}")
        text = await beside(len(tokens), lambda: tokenizer.decode(tokens, skip_special=False))
        return JSONResponse({"prompt": text})

    return router


def _check(body: TokenizeBody | DetokenizeBody, served: TextEngine) -> None:
    """A body need not name the model."""
    if body.model is not None:
        check_model(served, body.model)
