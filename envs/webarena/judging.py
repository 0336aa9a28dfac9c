"""Which judge an episode has: nobody, or a model at an endpoint whose answers are kept and replayed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from envs.webarena.evaluators.judge import Ask, AskingJudge, Judge, KeptAnswers, NoJudge, NoVerdict
from lemur_ray.agents.external_calls import ContentRefused, ExternalCallError, ask_quoting, endpoint_at, external_call
from lemur_ray.agents.messages import (
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    PolicyUnreachable,
    Sampling,
)
from lemur_ray.agents.openai_policy import OpenAIPolicy

PREFIX = "openai:"
MAX_TOKENS = 256


class JudgeMissing(ExternalCallError):
    """The judge gives no answer."""


def judge_of(spec: str, kept: str) -> Judge:
    """``none``, ``replay`` or ``openai:URL#MODEL``. ``kept``: file of its answers, or empty."""
    if spec == "none":
        return NoJudge()
    if spec == "replay":
        return AskingJudge(_nobody, _kept(kept))
    return AskingJudge(_asked_at(spec), _kept(kept), spec.partition("#")[2])


@cache
def _kept(file: str) -> KeptAnswers:
    """One for all episodes of this process."""
    return KeptAnswers(Path(file) if file else None)


def _nobody(question: str) -> str:
    raise JudgeMissing("the recorded answers of the judge do not hold this question: give --judge openai:URL#MODEL")


@cache
def _asked_at(spec: str) -> Ask:
    url, _, model = spec.removeprefix(PREFIX).partition("#")
    endpoint = endpoint_at(url, model)
    policy = OpenAIPolicy(endpoint.url, endpoint.model, options=endpoint.options)

    def ask(question: str) -> str:
        with external_call("judge") as count:
            try:
                reply = ask_quoting(policy, ChatRequest((Message("user", question),), Sampling(MAX_TOKENS), "judge"))
            except EndpointRefused:
                raise
            except (ContextOverflow, ContentRefused) as error:  # the answer in the question is too long or not taken
                count(unsaid=1)
                raise NoVerdict(f"judge {model} does not answer about this: {error}") from error
            except PolicyUnreachable as error:
                raise JudgeMissing(f"judge {model}: {error}") from error
            count(prompt_tokens=reply.usage.prompt_tokens, completion_tokens=reply.usage.completion_tokens)
            return reply.text

    return ask
