"""A policy behind any OpenAI-compatible chat endpoint, our own server included.

| the endpoint | the policy |
|---|---|
| 400 with code ``context_length_exceeded`` | ContextOverflow |
| 408, 409, 429, 5xx, no connection, no answer in time, not a chat completion | tries again, as below |
| any other status | PolicyUnreachable at once: asking again would change nothing |

How long and how often it tries again, and how many requests are sent at once while the endpoint refuses (429, 503),
is ``agents.persistence``'s. The pauses let a server that died in the middle of an episode come back. An answer that
never ends is cut off by time and by size. Safe to share between threads. Knows nothing of environments.
"""

from __future__ import annotations

import email.utils
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow, PolicyUnreachable, Usage
from lemur_ray.agents.persistence import Again, Persistence
from lemur_ray.agents.throttle import Pressure

if TYPE_CHECKING:
    import openai

AGAIN = frozenset({408, 409, 429})
REFUSALS = frozenset({429, 503})
"""Of an endpoint that has too much to do."""
SESSION_HEADER = "x-session-id"
"""Our own server keeps the cache of a session for its next turn, on the replica that has it; others ignore it."""
MOST_BYTES = 16 * 2**20
"""Of one answer; no chat completion is that long."""


class OpenAIPolicy:
    """Asks ``model`` at ``base_url`` (which ends in ``/v1``)."""

    wants_hints = False

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        name: str = "",
        api_key: str = "",
        timeout_s: float = 120.0,
        patience_s: float = 240.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``timeout_s``: for one request. ``patience_s``: for one reply, all its requests and pauses together."""
        import openai  # half a second, and only this policy needs it

        self.name = name or f"openai:{model}"
        self.model = model
        self.base_url = base_url
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._clock, self._wall_clock, self._sleep = clock, wall_clock, sleep
        self._persistence = Persistence(base_url, patience_s, clock, sleep)
        self._client: openai.OpenAI = openai.OpenAI(
            base_url=base_url,
            api_key=api_key or os.environ.get("OPENAI_API_KEY") or "none",
            timeout=timeout_s,
            max_retries=0,  # retries are ours: they must obey one budget and end in one of our own errors
        )

    def reply(self, request: ChatRequest) -> ChatReply:
        """One reply. Raises ContextOverflow, or PolicyUnreachable after about ``patience_s`` seconds of asking."""
        return self._persistence.ask(lambda left_s: self._ask(request, left_s), request.sampling.seed)

    def pressure(self) -> Pressure:
        """How the endpoint holds this process back."""
        return self._persistence.pressure()

    def served_models(self) -> dict[str, str]:
        """Name -> version of the models that the endpoint serves; empty where it answers but does not say.

        The version, empty where there is none, is a field that our own server adds to the protocol.

        Raises PolicyUnreachable where nothing answers within the patience.
        """
        import openai

        give_up_at = self._clock() + self._patience_s
        while True:
            try:
                listed = self._client.models.list().data
                return {model.id: str((model.model_extra or {}).get("version") or "") for model in listed}
            except openai.APIConnectionError as error:
                if self._clock() + 1.0 >= give_up_at:
                    message = f"nothing answers at {self.base_url}: {error} ({error.__cause__}); is the server running?"
                    raise PolicyUnreachable(message) from error
                self._sleep(1.0)
            except (openai.APIError, ValueError, TypeError, AttributeError):
                return {}

    def close(self) -> None:
        """Close the connections to the endpoint."""
        self._client.close()

    def _ask(self, request: ChatRequest, left_s: float) -> ChatReply:
        """One request. Raises Again where another one may do better."""
        import openai

        s = request.sampling
        timeout_s = max(0.1, min(self._timeout_s, left_s))
        try:
            with self._client.chat.completions.with_streaming_response.create(
                model=self.model,
                messages=[message.to_json() for message in request.messages],  # type: ignore[misc]
                max_tokens=s.max_tokens,
                temperature=s.temperature,
                top_p=s.top_p,
                seed=s.seed,
                stop=list(s.stop) or openai.omit,
                user=request.episode or openai.omit,
                extra_body={"top_k": s.top_k} if s.top_k else None,
                extra_headers={SESSION_HEADER: request.session} if request.episode else None,
                timeout=timeout_s,
            ) as answer:
                # The timeout is that of each read: an endpoint that says a little now and then would never meet it.
                body = _whole(answer.iter_bytes(), self._clock() + timeout_s, self._clock)
            return _reply_of(json.loads(body))
        except openai.APIStatusError as error:
            if _is_overflow(error):
                raise ContextOverflow(error.message) from error
            if error.status_code in AGAIN or error.status_code >= 500:
                refused = error.status_code in REFUSALS
                said = f"status {error.status_code}: {error.message[:300]}"
                raise Again(said, self._retry_after(error), refused=refused) from error
            raise PolicyUnreachable(f"{self.base_url}: status {error.status_code}: {error.message[:1000]}") from error
        except openai.APIConnectionError as error:
            raise Again(f"{type(error).__name__}: {error} ({error.__cause__})") from error
        except (openai.APIError, ValueError, RecursionError) as error:
            raise Again(f"not a chat completion: {type(error).__name__}: {str(error)[:300]}") from error

    def _retry_after(self, error: openai.APIStatusError) -> float | None:
        """Seconds the server asks to wait: a number, milliseconds, or an HTTP date."""
        headers: Mapping[str, str] = error.response.headers
        try:
            if "retry-after-ms" in headers:
                return max(0.0, float(headers["retry-after-ms"]) / 1000)
            if "retry-after" not in headers:
                return None
            text = headers["retry-after"]
            if text.strip().replace(".", "", 1).isdigit():
                return float(text)
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - self._wall_clock())
        except ValueError:
            return None  # a malformed header: our own pause is as good


def _whole(chunks: Iterator[bytes], until: float, clock: Callable[[], float]) -> bytes:
    """The body of an answer. Raises Again where it breaks off, is too long, or is not over at ``until``."""
    body = bytearray()
    try:
        for chunk in chunks:
            body += chunk
            if len(body) > MOST_BYTES or clock() > until:
                why = f"{len(body)} bytes" if len(body) > MOST_BYTES else "its time was over"
                raise Again(f"an answer without an end: given up after {why}")
    except Again:
        raise
    except Exception as error:  # of the HTTP library under the client, whose classes differ between versions of it
        raise Again(f"the answer broke off: {type(error).__name__}: {error}") from error
    return bytes(body)


def _is_overflow(error: openai.APIStatusError) -> bool:
    """Whether a refusal says that the conversation is too long; servers that set no code say it in words."""
    words = error.message.lower()
    in_words = "maximum context length" in words or "context_length_exceeded" in words
    return error.code == "context_length_exceeded" or (error.status_code == 400 and in_words)


def _reply_of(completion: Any) -> ChatReply:
    """The reply in a completion; a server may send anything, so each part is looked at. Raises Again."""
    try:
        choice = completion["choices"][0]
        text, finish = choice["message"].get("content"), choice.get("finish_reason")
        usage, version = completion.get("usage"), completion.get("system_fingerprint")
        details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise Again(f"not a chat completion: {type(completion).__name__} {str(completion)[:200]!r}") from error
    if text is not None and not isinstance(text, str):
        raise Again(f"content of type {type(text).__name__} in a chat completion: expected a string")
    return ChatReply(
        text=text or "",
        finish_reason="length" if finish == "length" else "stop",
        usage=Usage(
            prompt_tokens=_count(usage, "prompt_tokens"),
            completion_tokens=_count(usage, "completion_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
        ),
        version=version[:128] if isinstance(version, str) else "",
    )


def _count(holder: Any, name: str) -> int:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
