"""The tokenizer over HTTP, at the server's root: /tokenizer_info, /tokenize and /detokenize.

As evaluation clients ask for them (lm-eval's ``local-completions`` with ``tokenizer_backend=remote``): special tokens
that are spelled out in a text are special tokens here, as everywhere at Hugging Face, while the text of a request for
completions never is. Long texts are encoded beside the event loop, one after another, so that they leave threads to
the prompts of other requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from lemur_ray.serve.http.chat_prompts import chat_prompt
from lemur_ray.serve.http.error_answers import errors_about
from lemur_ray.serve.http.request_body import check_model, read_body
from lemur_ray.serve.openai.checked_requests import TokenizeCall, parse_tokenize
from lemur_ray.serve.openai.described_routes import described
from lemur_ray.serve.openai.errors import invalid
from lemur_ray.serve.openai.request_models import DetokenizeBody, TokenizeBody
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat_template import TemplateError
from lemur_ray.text.chatml import TEMPLATE
from lemur_ray.text.special_tokens import BOS, CONFIG, json_file
from lemur_ray.weights.hf_config import tokenizer_files

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
        files = tokenizer_files(tokenizer)
        own = {**json_file(files, CONFIG), "model_max_length": served.engine.context}
        with contextlib.suppress(TemplateError):  # a base model has none
            own["chat_template"] = served.template.source
        if not tokenizer.files:  # who renders the template knows only the messages, so BOS is spelled out in it
            own["chat_template"] = BOS + TEMPLATE
        return JSONResponse(own)

    @router.post("/tokenize", openapi_extra=described(TokenizeBody, served.name))
    async def tokenize(request: Request) -> Response:
        with errors_about("messages"):
            call = parse_tokenize(await read_body(request, served.engine.context))
        _check(call.model, served)
        tokens = list(await _ids(call))
        if call.add_special_tokens:
            tokens = [*tokenizer.special.before, *tokens, *tokenizer.special.after]

        def answer() -> Response:
            names = tokenizer.names(tokens) if call.return_token_strs else None
            body = {"tokens": tokens, "count": len(tokens), "max_model_len": served.engine.context}
            return JSONResponse({**body, "token_strs": names})

        return await beside(len(tokens), answer)

    async def _ids(call: TokenizeCall) -> Sequence[int]:
        if call.conversation is not None:
            return await chat_prompt(served, call.conversation)
        encode = tokenizer.encode if call.split_special_tokens else tokenizer.encode_marked
        return await beside(len(call.text), lambda: encode(call.text))

    @router.post("/detokenize", openapi_extra=described(DetokenizeBody, served.name))
    async def detokenize(request: Request) -> Response:
        with errors_about("tokens"):
            body = DetokenizeBody.of(await read_body(request, served.engine.context))
        _check(body.model, served)
        tokens, vocab_size = body.tokens, served.engine.config.vocab_size
        if any(not 0 <= i < vocab_size for i in tokens):
            raise invalid("tokens", f"has ids outside 0..{vocab_size - 1}")
        text = await beside(len(tokens), lambda: tokenizer.decode(tokens, skip_special=False))
        return JSONResponse({"prompt": text})

    return router


def _check(model: str | None, served: TextEngine) -> None:
    """A body need not name the model."""
    if model is not None:
        check_model(served, model)
