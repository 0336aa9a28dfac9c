"""Reading and parsing of a request's body within limits. Knows nothing of the endpoints' fields."""

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
"""Seconds within which a body must arrive."""
MANY_IDS = 2**17
"""Numbers in a list, which take some milliseconds to parse; only a prompt may have more."""
MANY_VALUES = 2**19
"""Values in a body, which take a tenth of a second to parse; more are accepted only for prompts up to the context."""
MANY_CONTAINERS = 2**17
"""Lists and objects in a body, each of which takes as long to parse as ten numbers."""
MANY_KEYS = 2**16
"""Names in objects of a body: each takes as long to parse as eight numbers, and more if there are many."""
DIGITS = 64
"""Most digits of a number, because the time to parse one grows with the square of its digits."""
MEAN_DIGITS = 16
"""Most digits per value on average, at the largest number of values."""
PROMPTS = 8
"""Prompts of token ids, each as long as the context, that are accepted in one request."""
_SLICE = 2**21
_COUNTED = 2**18
_OTHERS = bytes(set(range(256)) - set(b'",:[{'))
_AS_DIGITS = bytes(ord("0") if chr(byte).isdecimal() else byte if byte == ord('"') else 1 for byte in range(256))
_LONG_NUMBER = b"0" * (DIGITS + 1)
_MANY = re.compile(rb"\[[\d\s,]{%d,}" % (2 * MANY_IDS))
_RUN = re.compile(rb"\[[\d\s,]*")
_ID_BYTES = 12


async def read_body(request: Request, context: int = 0) -> Any:
    """The parsed JSON body of a request, at most 32 MiB and within 120 s; limits are checked before parsing, which
    would block the event loop for seconds.
    context: the model's, in tokens; 0: lists of ids are not limited. Raises ContextExceeded for a far longer list of
    ids, and ApiError: 400 for invalid JSON, or more values, names or digits than any request needs, 408 if it is too
    slow, 413 if it is too large, 499 if the client disconnects. The body must be UTF-8."""
    raw = await _read(request)
    if context:
        await _check_lists(raw, max(context, MANY_IDS), context)
    await _check_values(raw, max(MANY_VALUES, PROMPTS * context))
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error


def check_lengths(body: Any, context: int, capacity: int) -> None:
    """Check number and lengths of a body's prompts of token ids, before the ids themselves. Any other form of ``body``
    passes. context: tokens; capacity: replies that the engine accepts at once. Raises ContextExceeded for too long a
    prompt, ApiError 400 for too many."""
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
    """Raise ContextExceeded for a list of more than ``most`` numbers. Yields to other requests between slices."""
    quotes, counted, at = 0, 0, 0
    while at + 2 * MANY_IDS < len(raw):
        match = _MANY.search(raw, at, at + _SLICE + 2 * MANY_IDS)
        if match is None:
            at += _SLICE
        else:
            before = raw[counted : match.start()].replace(b"\\\\", b"").replace(b'\\"', b"")
            quotes, counted = quotes + before.count(b'"'), match.start()
            run = _RUN.match(raw, match.start(), match.start() + _ID_BYTES * most)
            assert run is not None
            count = raw.count(b",", run.start(), run.end())
            if count >= most and quotes % 2 == 0:  # not inside a string
                raise ContextExceeded(count, 1, context, at_least=True)
            at = run.end()
        await asyncio.sleep(0)


async def _check_values(raw: bytearray, most: int) -> None:
    """Raise ApiError 400 for more than ``most`` values, or for too many lists, objects, names or digits."""
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
            del part[-1:]  # it escapes the next slice's first byte
        at += len(part)
        if b'"' in part or not inside:
            bare = part.replace(b"\\\\", b"").replace(b'\\"', b"")
            texts = bare.translate(None, _OTHERS).split(b'"')
            marks = b"".join(texts[inside::2])
            numbers = b" ".join(bare.translate(_AS_DIGITS).split(b'"')[inside::2])
            containers = marks.count(b"[") + marks.count(b"{")
            values, digits = containers + marks.count(b","), numbers.count(b"0")
            new = (values, containers, marks.count(b":"), digits, numbers.count(_LONG_NUMBER))
            counts = [count + more for count, more in zip(counts, new, strict=True)]
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


def check_model(served: TextEngine, name: str | None) -> None:
    """Raise ApiError 404 if ``name``, the model that a request names, is not the served one; None passes."""
    if name not in (None, served.name):
        message = f"The model {name!r} does not exist; this server has {served.name!r}."
        raise ApiError(404, message, param="model", code="model_not_found")
