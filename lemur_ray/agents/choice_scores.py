"""How likely each of several texts follows a prompt, by an endpoint's echo of log-probabilities.

One completion per choice, of prompt and choice together, with one token more, whose probability is left out (servers
differ in what they make of none). Tokens are counted from the end, because what a server puts before a prompt is its
own affair. Knows nothing of HTTP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, Usage

GENERATED = 1
"""Tokens that are asked for besides the echo."""


def choice_scores_body(model: str, request: ChatRequest) -> dict[str, Any]:
    """The JSON that asks for every choice at once."""
    body: dict[str, Any] = {"model": model, "prompt": [request.text + choice for choice in request.choices]}
    body |= {"max_tokens": GENERATED, "temperature": 0.0, "seed": request.sampling.seed, "echo": True, "logprobs": 1}
    return body | ({"user": request.episode} if request.episode else {})


def parse_choice_scores(answer: Any, choices: Sequence[str]) -> ChatReply:
    """The likeliest choice as a reply, with the log-likelihood of each. Raises ValueError for any other answer."""
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
    counted = prompt_tokens if isinstance(prompt_tokens, int) else 0
    told = version[:128] if isinstance(version, str) else ""
    return ChatReply(choices[best], usage=Usage(prompt_tokens=counted), version=told, choices=values)


def _of(logprobs: Mapping[str, Sequence[Any]], choice: str) -> float:
    """Sum over the last tokens before the generated one that hold the choice's text."""
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
