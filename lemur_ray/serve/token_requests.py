"""Token ids in and out of a model that is asked by our own policies, without HTTP (``agents.handle_policy``).

A request is ``{"turns", "sampling", "session"}``: each turn a message ``{"role", "content"}``, or ``{"ids"}`` for what
the model itself generated as the content of an assistant turn. An answer has ``text``, ``ids`` (of that text alone: to
be sent back in the next request), ``finish_reason`` and counts of tokens; or ``refused`` ("context", "busy", "closed"
or "invalid") with a ``message``. Plain values, so that who asks needs none of our classes. Knows nothing of Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.serve.engine.errors import ContextExceeded, EngineClosed, QueueFull, RequestFailed, RequestRefused
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.reply_types import Reply
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat import encode_dialogue

CONTINUATION = range(0x80, 0xC0)
"""Bytes of UTF-8 that go on with a character."""


async def converse(served: TextEngine, asked: Mapping[str, Any]) -> dict[str, Any]:
    """One reply of the model, in a running event loop."""
    s = asked["sampling"]
    stop = tuple(s["stop"])
    try:
        turns = [tuple(turn["ids"]) if "ids" in turn else Message.from_json(turn) for turn in asked["turns"]]
        prompt = tuple(await asyncio.to_thread(encode_dialogue, served.tokenizer, turns))
        generation = _generation(served, prompt, s, str(asked.get("session", "")))
        replies = served.open([generation], stop, whole=True)
    except ContextExceeded as error:
        return {"refused": "context", "message": str(error)}
    except QueueFull as error:
        return {"refused": "busy", "message": str(error), "retry_after_s": float(error.retry_after_s)}
    except EngineClosed as error:
        return {"refused": "closed", "message": str(error)}
    except ValueError as error:
        return {"refused": "invalid", "message": str(error)}
    try:
        (reply,) = await replies.collect()
    except RequestRefused as error:
        return {"refused": "invalid", "message": str(error)}
    except (EngineClosed, RequestFailed) as error:
        return {"refused": "closed", "message": str(error)}
    finally:
        replies.close()
    return {
        "text": reply.text,
        "ids": content_ids(served, reply, stop),
        "finish_reason": reply.finish_reason,
        "version": reply.version,
        "prompt_tokens": len(prompt),
        "completion_tokens": len(reply.tokens),
        "cached_tokens": reply.cached_tokens,
    }


def content_ids(served: TextEngine, reply: Reply, stop: Sequence[str]) -> list[int]:
    """The ids of a reply's text: without the one that ended the turn, and without those of a stop string.

    Where a stop string begins inside a token, what of that token belongs to the text is encoded by itself.
    """
    if reply.finish_reason == "length":
        return list(reply.tokens)
    if reply.tokens and reply.tokens[-1] in served.stop_ids:
        return reply.tokens[:-1]
    text, size, kept = reply.text.encode(), 0, 0
    pieces = [served.token_text(token) for token in reply.tokens]
    while kept < len(pieces) and size < len(text) and text.startswith(pieces[kept], size):
        size += len(pieces[kept])
        kept += 1
    while kept and size < len(text) and text[size] in CONTINUATION:  # never cut a character in two
        kept -= 1
        size -= len(pieces[kept])
    return [*reply.tokens[:kept], *served.tokenizer.encode_inside(text[size:].decode())]


def _generation(served: TextEngine, prompt: tuple[int, ...], s: Mapping[str, Any], session: str) -> Generation:
    top_k = s["top_k"]
    return Generation(
        prompt=prompt,
        max_tokens=s["max_tokens"],
        stop_ids=served.stop_ids,
        # As over HTTP: one token kept is the greedy choice, and keeping more than there are is keeping all.
        temperature=0.0 if top_k == 1 else s["temperature"],
        top_k=0 if top_k >= served.engine.config.vocab_size else top_k,
        top_p=s["top_p"],
        seed=s["seed"],
        session_id=session,
    )
