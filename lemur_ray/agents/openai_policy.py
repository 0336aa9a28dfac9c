"""A policy that queries any OpenAI-compatible endpoint, this project's server included.

| the endpoint | the policy |
|---|---|
| an error with code ``context_length_exceeded``, or a phrase for it (``openai_wire.OVERFLOW``) | ContextOverflow |
| 408, 409, 429, 5xx, no connection, no answer in time, no completion | repeats the request, as below |
| 401, 402, 403, 404, 405, 407, 410, a redirect, an unknown field, a spent quota | EndpointRefused: the run ends |
| 401 to a key from a file that now has another key | repeats the request with that key |
| any other status, or content against the endpoint's rules | RequestRefused at once: a retry would be useless |
| such a status to the first ``SENSELESS`` requests (those that quote a model excluded) | EndpointRefused |
| no completion in the first ``UNREADABLE`` responses with status 200 | EndpointRefused |

``agents.endpoint_retries`` repeats requests, and limits concurrent ones to an overloaded endpoint (429, 503); its
pauses let a server that died return. Endless responses are cut off; redirects are not followed. Thread-safe."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.choice_scores import choice_scores_body, parse_choice_scores
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.endpoint_retries import EndpointRetryPolicy, RetryableError, ThinkingBudget, requested_pause_s
from lemur_ray.agents.messages import (
    ChatReply,
    ChatRequest,
    ContextOverflow,
    EndpointAbsent,
    EndpointRefused,
    PolicyUnreachable,
    RequestRefused,
    merge_adjacent_turns,
)
from lemur_ray.agents.openai_wire import (
    NotAReply,
    Refusal,
    ThoughtsForm,
    context_lengths,
    model_versions,
    parse_json_body,
    parse_refusal,
    parse_reply,
    request_body,
    stops_of,
    without_secrets,
)
from lemur_ray.agents.throttle import Pressure

AGAIN = frozenset({408, 409, 425, 429})
REFUSALS = frozenset({429, 503})
"""Statuses of an overloaded endpoint."""
FINAL = frozenset({401, 402, 403, 404, 405, 407, 410})
"""Statuses that persist until key, address or model change."""
NO_TOOLS = "for endpoints without tools: --tools words describes the tools in the prompt"
SENSELESS = 3
UNREADABLE = 5
SESSION_HEADER = "x-session-id"
"""This project's server routes a session to the replica that has its cache; other servers ignore the header."""
MOST_BYTES = 16 * 2**20
"""Maximum bytes of one response"""
MOST_OF_REFUSAL = 2**16
"""Maximum bytes of an error response that are read"""
CONNECT_S = 8.0
LIFE_S = 5.0
"""Timeout of the health probe, in seconds"""


class OpenAIPolicy:
    """Policy that queries ``model`` at ``base_url``, which usually ends in ``/v1``."""

    wants_hints = False

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        name: str = "",
        options: EndpointOptions | None = None,
        patience_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``patience_s``: seconds per reply, instead of the value in ``options``."""
        import httpx2  # a tenth of a second, and only this policy needs it

        options = options or EndpointOptions()
        self.options = options if patience_s is None else replace(options, patience_s=patience_s)
        self.name, self.model = name or f"openai:{model}", model
        self.base_url = base_url.rstrip("/")
        self._key: Key = self.options.key
        self._token_field = "max_tokens" if self.options.token_field == "auto" else self.options.token_field
        self._thoughts_form: ThoughtsForm | None = None
        self._thinking = ThinkingBudget(self.options.thinking_tokens)
        self.contexts: dict[str, int] = {}
        """Model name -> context length in tokens, as listed by the endpoint; filled by ``served_models``."""
        self._answered = self._closed = False
        self._senseless = self._unreadable = self._under_way = 0
        self._lock = threading.Lock()
        self._timeout_s = self.options.timeout_s or self.options.patience_s
        self._clock, self._wall_clock, self._sleep = clock, wall_clock, sleep
        self._persistence = EndpointRetryPolicy(
            self.base_url, self.options.patience_s, clock, sleep, places=self.options.places, is_alive=self._is_alive
        )
        many = httpx2.Limits(max_connections=None, max_keepalive_connections=256)
        # Compressed answers could grow beyond any limit in one piece.
        plain = {"Accept-Encoding": "identity", "User-Agent": "lemur-ray (agent evaluation)"}
        self._client = httpx2.Client(limits=many, headers=plain, follow_redirects=False)

    def reply(self, request: ChatRequest) -> ChatReply:
        """The model's reply to one request. Raises ContextOverflow if the conversation is too long, EndpointRefused if
        no request can succeed, RequestRefused if this one cannot, PolicyUnreachable after ``patience_s``."""
        return self._persistence.ask(lambda left_s: self._complete(request, left_s), request.sampling.seed)

    def pressure(self) -> Pressure:
        """Limit of concurrent requests, number of waiting ones, and number of refusals so far."""
        return self._persistence.pressure()

    def served_models(self) -> dict[str, str]:
        """Name -> version of the models that the endpoint lists (``GET /models``); empty if it has no such list. The
        version is a field of this project's server; empty for others. Raises EndpointAbsent if nothing listens,
        EndpointRefused after a 401 or redirect, PolicyUnreachable without an answer."""
        give_up_at = self._clock() + self.options.patience_s
        while True:
            try:
                listed = self._models(max(0.1, give_up_at - self._clock()))
                self.contexts = context_lengths(listed)
                return model_versions(listed)
            except RetryableError as error:
                if error.gone or self._clock() + 1.0 >= give_up_at:
                    kind = EndpointAbsent if error.gone else PolicyUnreachable
                    raise kind(f"nothing answers at {self.base_url}: {error}; is the server running?") from error
                self._sleep(1.0)
            except NotAReply:
                return {}

    def num_tokens(self, text: str) -> int | None:
        """Number of tokens of a text by the endpoint's tokenizer (``/tokenize`` of vLLM and of this project's server),
        without special tokens; None if the endpoint has no such route or does not answer."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        timeout_s = self.options.patience_s
        try:
            with self._sent("POST", "/tokenize", timeout_s, body, root=True) as (status, _, chunks):
                if status != 200:
                    return None
                answer = parse_json_body(_whole(chunks, self._clock() + timeout_s, self._clock, MOST_BYTES))
        except (RetryableError, NotAReply):
            return None
        count = answer.get("count") if isinstance(answer, dict) else None
        return count if type(count) is int and count >= 0 else None

    def close(self) -> None:
        """Close the connections, or have the last request in flight close them. Later requests raise an error."""
        with self._lock:  # a connection that is being made while the client closes would never be closed
            self._closed = True
            idle = self._under_way == 0
        if idle:
            self._client.close()

    def _models(self, timeout_s: float) -> Any:
        """The JSON value of ``GET /models``. Raises EndpointRefused (401, redirect), RetryableError, NotAReply."""
        with self._sent("GET", "/models", timeout_s) as (status, headers, chunks):
            if status == 200:
                return parse_json_body(_whole(chunks, self._clock() + timeout_s, self._clock, MOST_BYTES))
            refusal = self._refusal(status, chunks, timeout_s)
        if status == 401 or 300 <= status < 400:
            raise self._final(refusal, headers)
        raise NotAReply(str(status))

    def _is_alive(self) -> bool:
        """Health probe: whether ``GET /models`` is answered, with any status below 500."""
        try:
            with self._sent("GET", "/models", LIFE_S) as (status, _, _):
                return status < 500
        except RetryableError:
            return False

    def _complete(self, request: ChatRequest, left_s: float) -> ChatReply:
        """One reply as ``_ask`` returns it; a chat model's reasoning has a token limit of its own."""
        if request.raw or self.options.api != "chat":
            return self._ask(request, left_s)
        until = self._clock() + left_s
        return self._thinking.reply(lambda one: self._ask(one, until - self._clock()), request)

    def _ask(self, request: ChatRequest, left_s: float) -> ChatReply:
        """Send a request, for at most ``left_s`` seconds; returns the reply. Raises RetryableError."""
        key, token_field = self._key, self._token_field
        timeout_s = max(0.1, min(self._timeout_s, left_s))
        form = self._thoughts_form if self.options.resend_reasoning else None
        if request.choices:
            if not request.raw:
                raise EndpointRefused("a chat model weighs no choices: ask for a base model's form, or for replies")
            body = {**choice_scores_body(self.model, request), **self.options.more}
        else:
            body = request_body(self.model, request, self.options, token_field, form)
        path = "/completions" if request.raw or self.options.api == "completions" else "/chat/completions"
        with self._sent("POST", path, timeout_s, body, request.session) as (status, headers, chunks):
            until = self._clock() + timeout_s
            if status == 200:
                return self._replied(_whole(chunks, until, self._clock, MOST_BYTES), request)
            refusal = self._refusal(status, chunks, timeout_s)
        if refusal.is_overflow:
            self._answered = True
            raise ContextOverflow(refusal.message)
        if self.options.token_field == "auto" and token_field == "max_tokens" and refusal.wants_completion_tokens:
            self._token_field = "max_completion_tokens"
            return self._ask(request, left_s)
        if status == 401 and (newer := key.renewed() if self._key == key else self._key):
            self._key = newer
            return self._ask(request, left_s)
        if request.quotes and refusal.is_of_content:
            raise RequestRefused(f"{self.base_url}: status {status}: {refusal.message[:1000]}")
        if status in FINAL or 300 <= status < 400 or refusal.is_spent or refusal.unknown_field:
            raise self._final(refusal, headers)
        failure = f"status {status}: {refusal.message[:300]}"
        if status in AGAIN or status >= 500:
            raise RetryableError(failure, requested_pause_s(headers, self._wall_clock()), refused=status in REFUSALS)
        if status in (400, 422) and (joined := merge_adjacent_turns(request.messages)) is not None:
            return self._ask(replace(request, messages=joined, thoughts={}), left_s)
        self._senseless += not request.quotes
        if self._senseless >= SENSELESS and not self._has_answered():
            hint = f"; {NO_TOOLS}" if request.tools else ""
            raise EndpointRefused(
                f"{self.base_url}: the first {self._senseless} requests were refused, {failure}{hint}"
            )
        raise RequestRefused(f"{self.base_url}: status {status}: {refusal.message[:1000]}")

    @contextmanager
    def _sent(
        self, method: str, path: str, timeout_s: float, body: Any = None, session: str = "", root: bool = False
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        """Context manager for one HTTP request: yields status, headers and body of the response. ``root``: ``path`` is
        not beneath ``/v1``. Raises RetryableError for connection errors."""
        import httpx2

        headers = {**self._key.headers, **({SESSION_HEADER: session} if session else {})}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        with self._lock:
            if self._closed:
                raise PolicyUnreachable(f"{self.base_url}: the policy is closed")
            self._under_way += 1
        # The timeout limits each read only: an endpoint that sends a few bytes now and then would never exceed it.
        limits = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
        try:
            url = f"{self.base_url.removesuffix('/v1') if root else self.base_url}{path}"
            with self._client.stream(method, url, content=content, headers=headers, timeout=limits) as answer:
                yield answer.status_code, answer.headers, answer.iter_bytes()
        except httpx2.ConnectError as error:
            raise RetryableError(self._describe(error), gone=True) from error
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            raise RetryableError(self._describe(error)) from error
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise EndpointRefused(f"{self.base_url} is no address to ask: {error}") from error
        finally:
            with self._lock:
                self._under_way -= 1
                last = self._closed and self._under_way == 0
            if last:
                self._client.close()

    def _describe(self, error: BaseException) -> str:
        return self._key.hidden_in(f"{type(error).__name__}: {error}")[:300]

    def _replied(self, answer: bytes, request: ChatRequest) -> ChatReply:
        try:
            it = json.loads(self._key.hidden_in(answer.decode("utf-8")))
            reply, form = self._weighed(it, request) or parse_reply(it, stops_of(request, self.options), request.tools)
        except (NotAReply, ValueError, RecursionError) as error:
            self._unreadable += 1
            if self._unreadable >= UNREADABLE and not self._has_answered():
                begins = self._key.hidden_in(answer[:80].decode("utf-8", "replace"))
                raise EndpointRefused(
                    f"{self.base_url}: the first {self._unreadable} answers were no completions ({begins!r}): is this "
                    "an OpenAI-compatible endpoint? Its address mostly ends in /v1"
                ) from error
            raise RetryableError(f"not a chat completion: {type(error).__name__}: {str(error)[:300]}") from error
        if self.options.api == "completions" and not request.raw:
            reply = replace(reply, text=reply.text.rstrip().removeprefix(" "))
        if self.options.needs_usage and not (reply.usage.prompt_tokens or reply.usage.completion_tokens):
            raise EndpointRefused(
                f"{self.base_url} does not say how many tokens a reply took, so no episode can be held to a limit of "
                "tokens or cost: run without --episode-tokens and --episode-cost"
            )
        self._answered = True
        self._thoughts_form = form or self._thoughts_form
        reply = reply if request.tools else replace(reply, tool_calls=None)
        return without_secrets(reply, self._key.hidden_in)  # once more: in JSON a key may be spelled in escapes

    def _weighed(self, value: Any, request: ChatRequest) -> tuple[ChatReply, None] | None:
        """The reply to a request with choices, else None. Raises EndpointRefused without log-probabilities."""
        try:
            return (parse_choice_scores(value, request.choices), None) if request.choices else None
        except ValueError as error:  # a retry would get the same response
            raise EndpointRefused(f"{self.base_url}: {error}") from error

    def _has_answered(self) -> bool:
        """Whether the endpoint ever answered a request of this process, or of one that shares its request slots."""
        return self._answered or self._persistence.ever_answered()

    def _refusal(self, status: int, chunks: Iterator[bytes], timeout_s: float) -> Refusal:
        try:
            body = _whole(chunks, self._clock() + min(timeout_s, CONNECT_S), self._clock, MOST_OF_REFUSAL)
        except RetryableError as error:
            body = str(error).encode()
        refusal = parse_refusal(status, body)
        return replace(refusal, message=self._key.hidden_in(refusal.message))

    def _final(self, refusal: Refusal, headers: Mapping[str, str]) -> EndpointRefused:
        """The error that ends the run: address, status and message of the refusal, and the remedy if it is known."""
        flag = self._key.flag
        problem = f"{self.base_url}: status {refusal.status}: {' '.join(refusal.message.split())[:500]}"
        what = ""
        if 300 <= refusal.status < 400:
            there = headers.get("location", "")[:200]
            problem = f"{self.base_url}: status {refusal.status}: it sends requests on to {there!r}"
            what = "give that address if it is the endpoint's; redirects are not followed, so the key stays here"
        elif refusal.status == 401 and not self._key:
            what = f"no key was sent: name the environment variable that holds it with {flag}"
        elif refusal.status in (401, 403):
            what = f"it does not take the key of {flag} {self._key.name}".rstrip()
        elif refusal.status in (404, 405):
            what = f"is there a model {self.model!r}, and does the address end in /v1?"
        elif refusal.unknown_field == "tools":
            what = NO_TOOLS
        elif refusal.unknown_field:
            body = json.dumps({refusal.unknown_field: None})
            what = f"leave the field out with {flag.replace('key-env', 'body')} '{body}'"
        return EndpointRefused(self._key.hidden_in("; ".join(filter(None, [problem, what]))))


def _whole(chunks: Iterator[bytes], until: float, clock: Callable[[], float], most_bytes: int) -> bytes:
    """The body of a response. Raises RetryableError if it exceeds ``most_bytes``, or arrives after ``until``."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > most_bytes or clock() > until:
            why = f"{len(body)} bytes" if len(body) > most_bytes else "its time was over"
            raise RetryableError(f"an answer without an end: given up after {why}")
    return bytes(body)
