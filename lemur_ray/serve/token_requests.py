"""Requests by Ray handle: a conversation in, token ids out, without HTTP (see ``agents.handle_policy``).

A request is ``{"turns", "sampling", "session"}``, and ``tools`` if the model may call some. A turn is a message
``{"role", "content"}``, or ``{"ids"}`` for an assistant turn that the model itself generated. ``sampling`` has
``max_tokens``, ``stop`` and any of the fields of ``SamplingOptions``, the same as over HTTP. An answer has ``text``,
``ids`` (of that text, for the next request), ``finish_reason``, counts of tokens, and ``tool_calls`` if there are
tools; or ``refused`` ("context", "busy", "closed" or "invalid") with a ``message``. If the request has ``trace`` true,
so has the answer: ids of the ``prompt``, all ``drawn`` ids and their ``logprobs``, float32 values of the model's own
distribution. All are plain values, so a client needs none of these classes. Knows nothing of Ray."""

import asyncio
from collections.abc import Mapping
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.serve.engine.errors import EngineError, QueueFull
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.engine.token_logprobs import joined
from lemur_ray.serve.openai.tools import CallStream, Toolbox
from lemur_ray.serve.reply_types import Reply
from lemur_ray.serve.request_errors import REQUEST_ERRORS, error_form
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat import encode_dialogue
from lemur_ray.text.tools_in_words import spell_out_calls, tool_function

CONTINUATION = range(0x80, 0xC0)
"""Bytes of UTF-8 that continue a character."""


async def converse(served: TextEngine, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request of a policy: ``turns``, ``sampling``, ``session`` and perhaps ``tools`` in; ``text``,
    ``ids``, ``finish_reason`` and token counts out (forms in the module). An invalid request, a full queue, and a
    closed engine or failed computation become an answer with ``refused``; a missing key raises KeyError."""
    options = dict(request["sampling"])
    max_tokens, stop = options.pop("max_tokens"), tuple(options.pop("stop"))
    try:
        turns = [tuple(turn["ids"]) if "ids" in turn else Message.from_json(turn) for turn in request["turns"]]
        raw = request.get("tools", ())
        tools = Toolbox(tuple(map(tool_function, raw)), tuple(raw), bare=served.calls_are_bare) if raw else None
        if tools and not served.template.knows_tools:
            turns = _in_words(turns, tools)
        shown = tools.raw if tools and served.template.knows_tools else ()
        prompt = tuple(await asyncio.to_thread(encode_dialogue, served.tokenizer, turns, None, shown))
        session_id = str(request.get("session", ""))
        traced, sampling = bool(request.get("trace", False)), SamplingOptions.from_json(options)
        generation = served.generation(prompt, max_tokens, sampling, session_id=session_id, logprobs=traced)
        replies = served.open([generation], stop, whole=True)
    except REQUEST_ERRORS as error:
        return _refusal(error)
    try:
        (reply,) = await replies.collect()
    except EngineError as error:
        return _refusal(error)
    finally:
        replies.close()
    text, extra = reply.text, dict[str, Any]()
    if tools:
        stream = CallStream(tools)
        text, calls = stream.push(reply.text)
        text += stream.end(cut=reply.finish_reason == "length")
        extra = {"tool_calls": [call.to_json() for call in calls]}
    if traced:
        logprobs = joined(reply.logprobs).logprob.tolist()
        extra["trace"] = {"prompt": list(prompt), "drawn": list(reply.tokens), "logprobs": logprobs}
    return {
        "text": text,
        "ids": content_ids(served, reply),
        "finish_reason": reply.finish_reason,
        "version": reply.version,
        "prompt_tokens": len(prompt),
        "completion_tokens": len(reply.tokens),
        "cached_tokens": reply.cached_tokens,
        **extra,
    }


def _in_words(turns: list[tuple[int, ...] | Message], tools: Toolbox) -> list[tuple[int, ...] | Message]:
    """The turns for a template that knows no tools: described in the system turn, and calls as text."""
    head = [turn for turn in turns[:1] if isinstance(turn, Message)]
    out = [*tools.described(head), *turns[len(head) :]]
    return [spell_out_calls([turn])[0] if isinstance(turn, Message) else turn for turn in out]


def _refusal(error: EngineError | ValueError) -> dict[str, Any]:
    answer: dict[str, Any] = {"refused": error_form(error).refusal, "message": str(error)}
    return {**answer, "retry_after_s": float(error.retry_after_s)} if isinstance(error, QueueFull) else answer


def content_ids(served: TextEngine, reply: Reply) -> list[int]:
    """Ids of a reply's text: without the id that ended the turn, and without those of a stop string.
    If a stop string begins inside a token, the part of the token before it is encoded by itself."""
    if reply.finish_reason == "length":
        return list(reply.tokens)
    if reply.tokens and reply.tokens[-1] in served.stop_ids:
        return reply.tokens[:-1]
    text, size, count = reply.text.encode(), 0, 0
    pieces = [served.token_text(token) for token in reply.tokens]
    while count < len(pieces) and size < len(text) and text.startswith(pieces[count], size):
        size += len(pieces[count])
        count += 1
    while count and size < len(text) and text[size] in CONTINUATION:  # never cut a character in two
        count -= 1
        size -= len(pieces[count])
    return [*reply.tokens[:count], *served.tokenizer.encode_inside(text[size:].decode())]
