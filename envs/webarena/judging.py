"""Chooses the judge of answers that rules cannot score: none, a model at an endpoint, or its stored answers."""

from functools import cache
from pathlib import Path

from envs.webarena.evaluators.judge import Ask, AskingJudge, Judge, NoJudge, NoVerdict, StoredAnswers
from lemur_ray.agents.external_calls import ContentRefused, ExternalCallError, ask_quoting, external_call
from lemur_ray.agents.messages import (
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    PolicyUnreachable,
    Sampling,
)
from lemur_ray.agents.policy_spec import policy_at

PREFIX = "openai:"
MAX_TOKENS = 256


class JudgeMissing(ExternalCallError):
    """Raised if a judge gives no answer: its endpoint fails, or a replay has no stored answer to the question."""


def judge_of(spec: str, kept: str) -> Judge:
    """The judge for ``none``, ``replay`` (stored answers alone) or ``openai:URL#MODEL``. ``kept``: file of stored
    answers, or empty. Raises ValueError for another ``spec``."""
    if spec == "none":
        return NoJudge()
    if spec == "replay":
        return AskingJudge(_no_model, _stored_answers(kept))
    return AskingJudge(_endpoint(spec), _stored_answers(kept), spec.partition("#")[2])


@cache
def _stored_answers(file: str) -> StoredAnswers:
    return StoredAnswers(Path(file) if file else None)


def _no_model(question: str) -> str:
    raise JudgeMissing("the recorded answers of the judge do not hold this question: give --judge openai:URL#MODEL")


@cache
def _endpoint(spec: str) -> Ask:
    policy, model = policy_at(spec, "judge"), spec.partition("#")[2]

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
