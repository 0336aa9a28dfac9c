"""A policy behind any OpenAI-compatible chat endpoint, our own server included.

| the endpoint | the policy |
|---|---|
| 400 with code ``context_length_exceeded`` | ContextOverflow |
| 408, 409, 429, 5xx, no connection, no answer in time, not a chat completion | tries again, as below |
| any other status | PolicyUnreachable at once: asking again would change nothing |

It tries again with growing, jittered pauses, or after exactly as long as ``Retry-After`` says, until ``patience_s``
have passed since the request was first sent; then PolicyUnreachable. The pauses let a server that died in the middle of
an episode come back. Safe to share between threads. Knows nothing of environments.
"""

from __future__ import annotations

import email.utils
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow, PolicyUnreachable, Usage

if TYPE_CHECKING:
    import openai

AGAIN = frozenset({408, 409, 429})
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0


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
        self._client: openai.OpenAI = openai.OpenAI(
            base_url=base_url,
            api_key=api_key or os.environ.get("OPENAI_API_KEY") or "none",
            timeout=timeout_s,
            max_retries=0,  # retries are ours: they must obey one budget and end in one of our own errors
        )

    def reply(self, request: ChatRequest) -> ChatReply:
        """One reply. Raises ContextOverflow or PolicyUnreachable, after at most about ``patience_s`` seconds."""
        give_up_at = self._clock() + self._patience_s
        jitter = random.Random(request.sampling.seed)
        tried = 0
        while True:
            tried += 1
            refusal, pause_s = "", None
            try:
                return self._ask(request, give_up_at)
            except _Again as again:
                refusal, pause_s = str(again), again.after_s
            if pause_s is None:
                pause_s = min(FIRST_PAUSE_S * 2 ** (tried - 1), LONGEST_PAUSE_S) * jitter.uniform(0.5, 1.0)
            if self._clock() + pause_s >= give_up_at:
                spent = f"{tried} requests in {self._patience_s:g} s of patience"
                raise PolicyUnreachable(f"{self.base_url}: {refusal} ({spent}, next pause {pause_s:.1f} s)")
            self._sleep(pause_s)

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

    def _ask(self, request: ChatRequest, give_up_at: float) -> ChatReply:
        """One request. Raises _Again where another one may do better."""
        import openai

        s = request.sampling
        try:
            completion = self._client.chat.completions.create(
                model=self.model,
                messages=[message.to_json() for message in request.messages],  # type: ignore[misc]
                max_tokens=s.max_tokens,
                temperature=s.temperature,
                top_p=s.top_p,
                seed=s.seed,
                stop=list(s.stop) or openai.omit,
                user=request.episode or openai.omit,
                extra_body={"top_k": s.top_k} if s.top_k else None,
                timeout=max(0.1, min(self._timeout_s, give_up_at - self._clock())),
            )
        except openai.APIStatusError as error:
            if _is_overflow(error):
                raise ContextOverflow(error.message) from error
            if error.status_code in AGAIN or error.status_code >= 500:
                raise _Again(f"status {error.status_code}: {error.message[:300]}", self._retry_after(error)) from error
            raise PolicyUnreachable(f"{self.base_url}: status {error.status_code}: {error.message[:1000]}") from error
        except openai.APIConnectionError as error:
            raise _Again(f"{type(error).__name__}: {error} ({error.__cause__})") from error
        except (openai.APIError, ValueError) as error:
            raise _Again(f"not a chat completion: {type(error).__name__}: {str(error)[:300]}") from error
        return _reply_of(completion)

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


class _Again(Exception):
    """This request failed, another one may not. ``after_s``: what the server asked for."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


def _is_overflow(error: openai.APIStatusError) -> bool:
    """Whether a refusal says that the conversation is too long; servers that set no code say it in words."""
    words = error.message.lower()
    in_words = "maximum context length" in words or "context_length_exceeded" in words
    return error.code == "context_length_exceeded" or (error.status_code == 400 and in_words)


def _reply_of(completion: Any) -> ChatReply:
    """The reply in a completion; a server may send anything, so each part is looked at. Raises _Again."""
    try:
        choice = completion.choices[0]
        text = choice.message.content
        finish = choice.finish_reason
    except (AttributeError, IndexError, TypeError) as error:
        raise _Again(f"not a chat completion: {type(completion).__name__} {str(completion)[:200]!r}") from error
    if text is not None and not isinstance(text, str):
        raise _Again(f"content of type {type(text).__name__} in a chat completion: expected a string")
    usage = getattr(completion, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    return ChatReply(
        text=text or "",
        finish_reason="length" if finish == "length" else "stop",
        usage=Usage(
            prompt_tokens=_count(usage, "prompt_tokens"),
            completion_tokens=_count(usage, "completion_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
        ),
    )


def _count(holder: object, name: str) -> int:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) else 0
