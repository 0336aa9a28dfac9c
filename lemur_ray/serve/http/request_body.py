"""The body of a request, read up to a limit and parsed, and the model it names.

Knows nothing of what the endpoints ask for in it.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from lemur_ray.serve.engine.errors import ContextExceeded
from lemur_ray.serve.openai.errors import ApiError
from lemur_ray.serve.text_engine import TextEngine

MAX_BODY_BYTES = 32 * 2**20
BODY_TIMEOUT_S = 120.0
"""Seconds in which a body has to arrive."""

MANY_IDS = 2**17
"""So many numbers in a list take some milliseconds to parse; nothing but a prompt may have more."""

MANY_VALUES = 2**19
"""So many values in a body take a tenth of a second to parse; more are let through only where prompts may be longer."""

MANY_CONTAINERS = 2**17
"""The same of lists and objects, each of which takes as long as ten numbers."""

MANY_KEYS = 2**16
"""The same of names in objects: distinct ones take as long as eight numbers, and more once they are many."""

DIGITS = 64
"""A number has no more of them: to parse a long one takes time with the square of its digits."""

MEAN_DIGITS = 16
"""Nor have as many values as there may be more than so many on the average."""

PROMPTS = 8
"""So many prompts of ids that are as long as the context may come at once, whatever their number of values."""

_SLICE = 2**21
_COUNTED = 2**18
_OTHERS = bytes(set(range(256)) - set(b'",:[{'))
_AS_DIGITS = bytes(ord("0") if chr(byte).isdecimal() else byte if byte == ord('"') else 1 for byte in range(256))
_LONG_NUMBER = b"0" * (DIGITS + 1)
_MANY = re.compile(rb"\[[\d\s,]{%d,}" % (2 * MANY_IDS))
_RUN = re.compile(rb"\[[\d\s,]*")
_ID_BYTES = 12


async def read_body(request: Request, context: int = 0) -> Any:
    """The body of a request; one that is too large is refused before it is in memory.

    context: tokens that fit. Raises ContextExceeded for a list of ids that is far longer, and ApiError 400 for more
    values, names or digits than any request has, before they are parsed: that would stop the event loop for seconds, in
    any thread. It is UTF-8, as JSON must be: in another encoding nothing could be counted.
    """
    raw = await _read(request)
    if context:
        await _check_lists(raw, max(context, MANY_IDS), context)
    await _check_values(raw, max(MANY_VALUES, PROMPTS * context))
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error


def check_lengths(body: Any, context: int, capacity: int) -> None:
    """Lengths of prompts that are ids, before each of these is looked at. What is wrong otherwise is not said here.

    Raises ContextExceeded, and ApiError 400 where there are more prompts than the engine takes at once.
    """
    prompt = body.get("prompt") if isinstance(body, dict) else None
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], int | list):
        return
    prompts = prompt if isinstance(prompt[0], list) else [prompt]
    if len(prompts) > capacity:
        message = f"there are {len(prompts)} prompts: this server takes at most {capacity} replies in one request"
        raise ApiError(400, message, param="prompt", code="invalid_value")
    longest = max((len(ids) for ids in prompts if isinstance(ids, list)), default=0)
    if longest > context:
        raise ContextExceeded(longest, 1, context)


async def _check_lists(raw: bytearray, most: int, context: int) -> None:
    """Raises ContextExceeded for a list of more than ``most`` numbers. Other requests go on between slices."""
    quotes, counted, at = 0, 0, 0
    while at + 2 * MANY_IDS < len(raw):
        found = _MANY.search(raw, at, at + _SLICE + 2 * MANY_IDS)
        if found is None:
            at += _SLICE
        else:
            before = raw[counted : found.start()].replace(b"\\\\", b"").replace(b'\\"', b"")
            quotes, counted = quotes + before.count(b'"'), found.start()
            run = _RUN.match(raw, found.start(), found.start() + _ID_BYTES * most)
            assert run is not None
            count = raw.count(b",", run.start(), run.end())
            if count >= most and quotes % 2 == 0:  # not inside a string
                raise ContextExceeded(count, 1, context, at_least=True)
            at = run.end()
        await asyncio.sleep(0)


async def _check_values(raw: bytearray, most: int) -> None:
    """Raises ApiError 400 for more than ``most`` values, or more of what takes longer to parse than a value."""
    if len(raw) <= MANY_CONTAINERS:
        return
    limits = {
        f"{most} values": most,
        f"{MANY_CONTAINERS} lists and objects": MANY_CONTAINERS,
        f"{MANY_KEYS} names in objects": MANY_KEYS,
        f"{MEAN_DIGITS * most} digits": MEAN_DIGITS * most,
        f"numbers of {DIGITS} digits": 0,
    }
    counts, at, inside = [0] * len(limits), 0, False
    while at < len(raw):
        part = raw[at : at + _COUNTED]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and at + len(part) < len(raw):
            del part[-1:]  # it belongs to what follows
        at += len(part)
        if b'"' in part or not inside:
            bare = part.replace(b"\\\\", b"").replace(b'\\"', b"")
            texts = bare.translate(None, _OTHERS).split(b'"')
            marks = b"".join(texts[inside::2])
            numbers = b" ".join(bare.translate(_AS_DIGITS).split(b'"')[inside::2])
            containers = marks.count(b"[") + marks.count(b"{")
            found = (containers + marks.count(b","), containers, marks.count(b":"), numbers.count(b"0"))
            counts = [old + new for old, new in zip(counts, (*found, numbers.count(_LONG_NUMBER)), strict=True)]
            inside ^= len(texts) % 2 == 0
        for (what, limit), count in zip(limits.items(), counts, strict=True):
            if count > limit:
                raise ApiError(400, f"the body holds more than {what}: send less in one request", code="invalid_value")
        await asyncio.sleep(0)


async def _read(request: Request) -> bytearray:
    declared = request.headers.get("content-length", "")
    too_large = ApiError(413, f"the body is too large: at most {MAX_BODY_BYTES} bytes are read")
    if declared.isdigit() and int(declared[:20]) > MAX_BODY_BYTES:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError as slow:
        raise ApiError(408, f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s", code="timeout") from slow
    except ClientDisconnect as gone:
        raise ApiError(499, "the client went away before its request was whole") from gone
    return raw


def check_model(served: TextEngine, name: str) -> None:
    """Raises ApiError 404 where a request is about another model."""
    if name != served.name:
        message = f"The model {name!r} does not exist; this server has {served.name!r}."
        raise ApiError(404, message, param="model", code="model_not_found")
