"""A policy that exchanges token ids with a model in the same cluster, without HTTP.

Earlier replies are sent back as the token ids that the model generated, since tokenising their text could give other
ids. New text is encoded by the server (``serve.token_requests``), so no tokenizer is needed here. An earlier reply
that the environment changed (cut, or with a prefix) is sent as text.

The caller supplies the transport as a function, ``ask``."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lemur_ray.agents.endpoint import AUTO_THINKING
from lemur_ray.agents.endpoint_retries import EndpointRetryPolicy, RetryableError, ThinkingBudget
from lemur_ray.agents.messages import (
    ChatReply,
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    PolicyUnreachable,
    Trace,
    Usage,
    merge_adjacent_turns,
    parse_tool_calls,
)
from lemur_ray.agents.openai_wire import cut, split_thoughts
from lemur_ray.agents.throttle import Pressure

PastReplies = Sequence[tuple[str | None, tuple[int, ...]]]
MAX_CACHED_EPISODES = 4096
"""Maximum number of episodes whose token ids are stored, the most recently used ones"""

Ask = Callable[[Mapping[str, Any], float], Mapping[str, Any]]
"""(request, timeout in seconds) -> response, both as in ``serve.token_requests``. May raise RetryableError."""


class HandlePolicy:
    """Policy that exchanges token ids with a model through ``ask``, a function (see ``Ask``). Thread-safe. ``name``:
    its name in episode keys."""

    wants_hints = False

    def __init__(
        self,
        ask: Ask,
        name: str,
        *,
        timeout_s: float | None = None,
        patience_s: float = 240.0,
        sampling: Mapping[str, Any] | None = None,
        thinking_tokens: int = AUTO_THINKING,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``patience_s``: seconds for one reply, with all its requests and pauses. ``timeout_s``: seconds for one
        request, by default what is left of ``patience_s``. ``sampling``: options beyond those of ``Sampling``.
        ``thinking_tokens``: tokens of reasoning beyond a reply's limit, negative: none until the model shows that it
        reasons."""
        self.name = name
        self._ask, self._timeout_s, self._sampling = ask, timeout_s or patience_s, sampling or {}
        self._thinking = ThinkingBudget(thinking_tokens)
        self._persistence = EndpointRetryPolicy(name, patience_s, clock, sleep)
        self._past: OrderedDict[str, list[tuple[str | None, tuple[int, ...]]]] = OrderedDict()
        self._lock = threading.Lock()

    def reply(self, request: ChatRequest) -> ChatReply:
        """The model's reply to one request. Raises ContextOverflow if the conversation is too long, PolicyUnreachable
        without an answer, EndpointRefused for a request with a picture, a prefill, choices or a text to continue."""
        if request.raw or request.prefill or request.choices:
            raise EndpointRefused(f"{self.name} converses only: use --policy checkpoint or an endpoint for other forms")
        if request.picture:
            raise EndpointRefused(f"{self.name} takes no pictures: play without them, or ask an endpoint that does")
        past = self._of(request)
        try:
            reply = self._reply(request, request.messages, past)
        except _Refused as error:
            if (joined := merge_adjacent_turns(request.messages)) is None:
                raise PolicyUnreachable(str(error)) from error
            try:
                reply = self._reply(request, joined, past)
            except _Refused as again:
                raise PolicyUnreachable(str(again)) from again
        # The ids of a reply hold its thoughts too, which are not sent back: such a reply goes back as text, as does one
        # that was cut here and has no ids for that reason, or that calls tools.
        as_text = reply.reasoning or reply.tool_calls or not reply.token_ids
        past.append((None, ()) if as_text else (reply.text, reply.token_ids))
        return reply

    def _reply(self, request: ChatRequest, messages: Sequence[Message], past: PastReplies) -> ChatReply:
        turns = turns_of(messages, past)

        def ask(one: ChatRequest) -> ChatReply:
            sampling = {**asdict(one.sampling), "stop": (), **self._sampling}  # the server would stop in the reasoning
            body: dict[str, Any] = {"turns": turns, "sampling": sampling, "session": one.session}
            body |= {"tools": list(one.tools)} if one.tools else {}
            body |= {"trace": True} if one.trace else {}
            reply = self._persistence.ask(lambda left_s: self._once(body, left_s), one.sampling.seed)
            kept = cut(reply.text, request.sampling.stop)
            if kept == reply.text:
                return reply
            return replace(reply, text=kept, finish_reason="stop", token_ids=(), stopped=True)

        # A traced reply is one draw: no second one with more room for reasoning.
        return ask(request) if request.trace else self._thinking.reply(ask, request)

    def pressure(self) -> Pressure:
        """Limit of concurrent requests, number of waiting ones, and number of refusals so far."""
        return self._persistence.pressure()

    def _of(self, request: ChatRequest) -> list[tuple[str | None, tuple[int, ...]]]:
        """Stored replies of the request's episode, oldest first; a request without replies starts an empty list."""
        begins = all(message.role != "assistant" for message in request.messages)
        with self._lock:
            past = [] if begins else self._past.get(request.episode, [])
            self._past[request.episode] = past
            self._past.move_to_end(request.episode)
            while len(self._past) > MAX_CACHED_EPISODES:
                self._past.popitem(last=False)
        return past

    def _once(self, body: Mapping[str, Any], left_s: float) -> ChatReply:
        answer = self._ask(body, max(0.1, min(self._timeout_s, left_s)))
        match answer.get("refused"):
            case None:
                usage = Usage(answer["prompt_tokens"], answer["completion_tokens"], answer["cached_tokens"])
                thoughts, text = split_thoughts(answer["text"])
                ids = tuple(answer["ids"])
                calls = parse_tool_calls(answer) if "tool_calls" in answer else None
                reply = ChatReply(text, answer["finish_reason"], usage, ids, answer["version"], thoughts)
                traced = answer.get("trace")
                return replace(reply, tool_calls=calls, trace=_trace(traced) if traced else None)
            case "context":
                raise ContextOverflow(answer["message"])
            case "busy":
                raise RetryableError(answer["message"], answer["retry_after_s"], refused=True)
            case "closed":
                raise RetryableError(answer["message"])
            case _:
                raise _Refused(f"{self.name}: {answer['message']}")


def _trace(answer: Mapping[str, Any]) -> Trace:
    return Trace(tuple(answer["prompt"]), tuple(answer["drawn"]), tuple(answer["logprobs"]))


class _Refused(Exception):
    """Raised if the model refuses a conversation, for example with two user turns in a row (chat template)."""


def turns_of(messages: Sequence[Message], past: PastReplies) -> list[dict[str, Any]]:
    """Messages for the server: ``{"role", "content"}``, or ``{"ids"}`` for a reply whose text is unchanged. ``past``:
    (text, token ids) of each earlier reply, oldest first, matched with the conversation from the newest backwards; a
    text of None means that the reply is sent as text."""
    turns: list[dict[str, Any]] = []
    left = list(past)
    for message in reversed(messages):
        text, ids = left.pop() if message.role == "assistant" and left else (None, ())
        turns.append({"ids": list(ids)} if text == message.content else dict(message.to_json()))
    return turns[::-1]
