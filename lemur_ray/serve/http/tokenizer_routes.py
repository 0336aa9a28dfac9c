"""The tokenizer over HTTP, at the server's root: /tokenizer_info, /tokenize and /detokenize.
For evaluation clients (lm-eval's ``local-completions`` with ``tokenizer_backend=remote``). A special token spelled in a
text becomes that token here, as in Hugging Face tokenizers; in a completion request it is plain text. Long texts are
encoded in one thread, one after another, so that prompts of other requests have the other threads."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from lemur_ray.serve.http.chat_prompts import chat_prompt
from lemur_ray.serve.http.error_answers import errors_about
from lemur_ray.serve.http.request_body import check_model, read_body
from lemur_ray.serve.openai.body_fields import described
from lemur_ray.serve.openai.checked_requests import Conversation, parse_tokenize
from lemur_ray.serve.openai.errors import invalid
from lemur_ray.serve.openai.request_models import DetokenizeBody, TokenizeBody
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat_template import TemplateError
from lemur_ray.text.chatml import TEMPLATE
from lemur_ray.text.special_tokens import BOS, CONFIG, json_file
from lemur_ray.weights.hf_config import tokenizer_files

T = TypeVar("T")

_AT_ONCE = 8192
"""Most characters or ids processed in the event loop (some milliseconds)."""


def tokenizer_routes(served: TextEngine) -> APIRouter:
    """The routes /tokenizer_info, /tokenize and /detokenize of one model."""
    router = APIRouter()
    tokenizer, one_at_a_time = served.tokenizer, asyncio.Lock()

    async def off_loop(size: int, work: Callable[[], T]) -> T:
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
        if not tokenizer.files:  # clients render the template from messages alone, so it contains BOS
            own["chat_template"] = BOS + TEMPLATE
        return JSONResponse(own)

    @router.post("/tokenize", openapi_extra=described(TokenizeBody, served.name))
    async def tokenize(request: Request) -> Response:
        with errors_about("messages"):
            body, conversation = parse_tokenize(await read_body(request, served.engine.context))
        check_model(served, body.model)
        tokens = list(await _ids(body, conversation))
        special = body.add_special_tokens
        if special or (special is None and conversation is None):
            tokens = [*tokenizer.special.before, *tokens, *tokenizer.special.after]

        def answer() -> Response:
            names = tokenizer.names(tokens) if body.return_token_strs else None
            counts = {"count": len(tokens), "max_model_len": served.engine.context}
            return JSONResponse({"tokens": tokens, **counts, "token_strs": names})

        return await off_loop(len(tokens), answer)

    async def _ids(body: TokenizeBody, conversation: Conversation | None) -> Sequence[int]:
        if conversation is not None:
            return await chat_prompt(served, conversation)
        encode = tokenizer.encode if body.split_special_tokens else tokenizer.encode_marked
        return await off_loop(len(body.prompt), lambda: encode(body.prompt))

    @router.post("/detokenize", openapi_extra=described(DetokenizeBody, served.name))
    async def detokenize(request: Request) -> Response:
        with errors_about("tokens"):
            body = DetokenizeBody.of(await read_body(request, served.engine.context))
        check_model(served, body.model)
        tokens, vocab_size = body.tokens, served.engine.config.vocab_size
        if any(not 0 <= i < vocab_size for i in tokens):
            raise invalid("tokens", f"has ids outside 0..{vocab_size - 1}")
        text = await off_loop(len(tokens), lambda: tokenizer.decode(tokens, skip_special=False))
        return JSONResponse({"prompt": text})

    return router
