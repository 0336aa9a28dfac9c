"""Log-likelihoods of several continuations of a prompt, from an endpoint's echo of log-probabilities.

Each choice is one completion request: prompt and choice as the prompt, and one generated token, which is ignored
(servers differ in their treatment of zero tokens). The choice's tokens are the last ones of the echo, because a server
may add tokens before a prompt."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, Usage

GENERATED = 1
"""Generated tokens per completion, besides the echo."""


def choice_scores_body(model: str, request: ChatRequest) -> dict[str, Any]:
    """JSON body of a /completions request for the log-likelihoods of ``request.choices``, one prompt per choice."""
    body: dict[str, Any] = {"model": model, "prompt": [request.text + choice for choice in request.choices]}
    body |= {"max_tokens": GENERATED, "temperature": 0.0, "seed": request.sampling.seed, "echo": True, "logprobs": 1}
    return body | ({"user": request.episode} if request.episode else {})


def parse_choice_scores(answer: Any, choices: Sequence[str]) -> ChatReply:
    """The likeliest of ``choices`` as a reply, with the log-likelihoods of all in ``choices``. ``answer``: the
    response's JSON to the request of ``choice_scores_body``. Raises ValueError if some are missing or not finite."""
    try:
        given = sorted(answer["choices"], key=lambda one: one["index"])
        if len(given) != len(choices):
            raise ValueError(f"{len(given)} completions, expected {len(choices)}")
        values = tuple(_of(one["logprobs"], choice) for one, choice in zip(given, choices, strict=True))
        usage, version = answer.get("usage"), answer.get("system_fingerprint")
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"no log-probabilities of what was asked ({type(error).__name__}: {error}); the endpoint must give echo "
            "and logprobs for completions, as vLLM and our server do"
        ) from error
    best = max(range(len(choices)), key=lambda place: values[place])
    prompt_tokens = usage.get("prompt_tokens", 0) if isinstance(usage, Mapping) else 0
    reported = version[:128] if isinstance(version, str) else ""
    counted = prompt_tokens if isinstance(prompt_tokens, int) else 0
    return ChatReply(choices[best], usage=Usage(prompt_tokens=counted), version=reported, choices=values)


def _of(logprobs: Mapping[str, Sequence[Any]], choice: str) -> float:
    """Log-likelihood of the choice: the sum over its tokens, just before the generated one. Raises ValueError."""
    tokens, each = logprobs["tokens"], logprobs["token_logprobs"]
    if len(tokens) != len(each):
        raise ValueError(f"{len(tokens)} tokens with {len(each)} log-probabilities")
    total, held = 0.0, 0
    for token, value in zip(reversed(tokens[:-GENERATED]), reversed(each[:-GENERATED]), strict=True):
        if held >= len(choice):
            break
        if value is None or not math.isfinite(value):
            raise ValueError(f"log-probability {value!r} of a token of {choice!r}")
        total, held = total + float(value), held + len(token)
    if held < len(choice):
        raise ValueError(f"the echo ends before the whole of {choice!r}")
    return total
