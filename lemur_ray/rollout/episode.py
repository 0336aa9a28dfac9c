"""One episode, from reset to its end: an environment and a policy in, an outcome with a blame out.

Every call that may hang (make, reset, step, close of the environment; reply of the policy) goes through ``call`` with
its own deadline; ``rollout.calls.deadline`` says what becomes of a call that never returns. Nothing raises out of
``run_episode`` but KeyboardInterrupt and its like: whatever goes wrong ends the attempt and says whose fault it was.

| what happened | outcome |
|---|---|
| the environment raises, hangs or breaks its protocol in make, reset or step | env_error |
| a sandbox did not come back clean (SandboxQuarantined): it is never used again | env_error |
| the machine ended a sandbox (SandboxError with the blame ``infra``) | infra_lost |
| in a step, the policy's code did (SandboxError with the blame ``policy``) | sandbox_destroyed, scored 0 |
| the policy did not answer (PolicyUnreachable, or its deadline) | policy_unreachable |
| nobody will be answered by the endpoint (EndpointRefused) | policy_unreachable, and the run ends |
| who is asked by the environment gives no answer (OutsideFault) | infra_lost |
| the episode used up its tokens, time or money (EpisodeLimits) | token_limit, time_limit, cost_limit |
| the conversation no longer fits the model (ContextOverflow) | context_overflow, scored 0 |
| the policy raises ValueError, and the environment says what then stands for its reply | goes to it like any other |
| anything else raises | harness_bug |
| an empty, endless or senseless reply | goes to the environment like any other, which says what it is |
| the turns ran out and no action of them could be carried out | invalid_actions |

An environment is told the epoch where its task has an option of that name. At reset it may say ``info['system']``
(system prompt), ``info['dialogue_limit']`` (messages of past turns that a policy is shown; 0: the newest observation
alone, in the place of the first), ``info['reply_prefix']`` (what its own replies then begin with), ``info['ask']`` (how
it is asked: as raw text, with a beginning of its reply, about choices, until which texts; what stands for its reply
where it raises ValueError) and ``info['hints']``; with any observation ``info['picture']`` (what is seen beside it, a
PNG as a ``data:`` address, which no record keeps) and ``info['note']``, the newest of which is kept beside the detail;
at the end ``info['score']`` where it is not the last reward, and ``info['scores']`` where there are several graders.

Knows nothing of Ray, of retries or of where episodes are stored.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from lemur_ray.agents.external_calls import CallMeter, ExternalCallError
from lemur_ray.agents.messages import (
    ChatReply,
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    Policy,
    PolicyUnreachable,
)
from lemur_ray.agents.trajectory import Outcome, Step, Trajectory, newest_steps
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec, derive_seed, turn_sampling
from lemur_ray.rollout.calls.deadline import Call, DeadlineExceeded, call_directly
from lemur_ray.rollout.calls.env_protocol import (
    Asking,
    EnvironmentFault,
    MachineFault,
    PolicyFault,
    asking_of,
    bounded,
    outcome_named,
    reset_answer,
    score_of,
    scores_in,
    step_answer,
    text_in,
)
from lemur_ray.sandbox.sandbox import SandboxError, SandboxQuarantined

MakeEnv = Callable[[str], Any]
TRUNCATED_PROMPT = "fewer prompt tokens for a longer conversation: the endpoint cuts what it is sent"
"""Noted of an episode in which it was so."""


def make_by_id(env_id: str) -> Any:
    """The environment behind a gymnasium id; ``module:id`` imports the module first."""
    return gymnasium.make(env_id, disable_env_checker=True)


def run_episode(
    spec: EpisodeSpec,
    policy: Policy,
    *,
    clock: Callable[[], float],
    call: Call = call_directly,
    make_env: MakeEnv = make_by_id,
) -> Attempt:
    """Play one episode to its end. ``clock`` gives monotonic seconds."""
    started = clock()
    opening: list[Message] = []
    asked: list[Asking] = []
    steps: list[Step] = []
    notes: list[str] = []
    scores: dict[str, float] = {}
    said: list[str] = []
    fatal_error = ""
    outcome: Outcome
    score: float | None
    try:
        outcome, score = _play(spec, policy, opening, asked, steps, notes, said, scores, clock, call, make_env)
    except EnvironmentFault as fault:
        outcome, score = Outcome.INFRA_LOST if isinstance(fault, MachineFault) else Outcome.ENV_ERROR, None
        notes.append(str(fault))
    except (PolicyUnreachable, DeadlineExceeded) as error:
        outcome, score = Outcome.POLICY_UNREACHABLE, None
        notes.append(str(error))
        fatal_error = str(error) if isinstance(error, EndpointRefused) else ""
    except ContextOverflow as error:
        outcome, score = Outcome.CONTEXT_OVERFLOW, 0.0
        notes.append(str(error))
    except Exception as error:  # what nobody foresaw is by definition the harness's fault, never the policy's
        outcome, score = Outcome.HARNESS_BUG, None
        notes.append("".join(traceback.format_exception(error))[-4000:])
    detail = bounded("; ".join(notes), 8000, "detail", [])
    ask = asked[0] if asked else Asking()
    shared = min(ask.shared, sum(len(message.content) for message in opening))
    limit = 0 if ask.dialogue_limit == 0 and len(steps) > 1 else None  # records of other limits are what they were
    trajectory = Trajectory(tuple(opening), tuple(steps), shared, limit)
    note = bounded("; ".join(said), 8000, "note", [])
    return Attempt(outcome, score, trajectory, clock() - started, detail, scores, fatal_error=fatal_error, note=note)


def _play(
    spec: EpisodeSpec,
    policy: Policy,
    opening: list[Message],
    asked: list[Asking],
    steps: list[Step],
    notes: list[str],
    said: list[str],
    scores: dict[str, float],
    clock: Callable[[], float],
    call: Call,
    make_env: MakeEnv,
) -> tuple[Outcome, float | None]:
    """The turns of an episode. What it fills as it goes (``opening`` to ``scores``) outlives an exception."""
    task, limits, ask = spec.task, spec.limits, Asking()

    def of_env(what: str, function: Callable[[], Any], timeout_s: float, meter: CallMeter | None = None) -> Any:
        try:
            return call(function, timeout_s, f"{task.env_id}: {what}", meter)
        except DeadlineExceeded as error:
            raise EnvironmentFault(str(error)) from error
        except EndpointRefused:
            raise
        except (ExternalCallError, PolicyUnreachable) as error:
            raise MachineFault(f"{task.env_id}: {what}: {type(error).__name__}: {error}") from error
        except SandboxQuarantined as error:
            # An environment lives for one attempt, so the sandbox goes with it; the pool it is from has dropped it.
            raise EnvironmentFault(f"{task.env_id}: {what}: a sandbox was put in quarantine: {error}") from error
        except SandboxError as error:
            kinds: dict[str, type[Exception]] = {"infra": MachineFault}
            if what == "step":  # before it the policy has done nothing, after it nothing more can come of it
                kinds["policy"] = PolicyFault
            raise kinds.get(error.blame, EnvironmentFault)(f"{task.env_id}: {what}: {error}") from error
        except (Exception, SystemExit) as error:
            last_lines = "".join(traceback.format_exception(error)[-2:]).strip()
            raise EnvironmentFault(f"{task.env_id}: {what} raised: {last_lines[-2000:]}") from error

    def turn_of_policy(request: ChatRequest, turn: int) -> ChatReply:
        try:
            reply = call(lambda: policy.reply(request), limits.policy_s, f"policy {policy.name}")
        except ValueError as error:
            if not ask.on_value_error:
                raise
            notes.append(f"turn {turn + 1}: policy {policy.name} raised {type(error).__name__}: {error}")
            return ChatReply(ask.instead_of(error))
        if not isinstance(reply, ChatReply):
            raise TypeError(f"policy {policy.name} answered {type(reply).__name__}: expected ChatReply")
        return reply

    env = of_env("make", lambda: make_env(task.env_id), limits.make_s)
    try:
        options = {**task.options, "hints": True} if getattr(policy, "wants_hints", False) else dict(task.options)
        if "epoch" in options:
            options["epoch"] = spec.key.epoch
        seed = derive_seed(task.benchmark, task.id, spec.key.epoch)
        answer = of_env("reset", lambda: env.reset(seed=seed, options=options), limits.reset_s)
        observation, info = reset_answer(answer, task.env_id)
        said[:] = [text_in(info, "note", task.env_id) or ""]
        if system := text_in(info, "system", task.env_id):
            opening.append(Message("system", system))
        ask = asking_of(info, task.env_id)
        asked.append(ask)
        opening.extend(ask.before)
        opening.append(Message("user", bounded(observation, limits.observation_chars, "first observation", notes)))
        prefix = text_in(info, "reply_prefix", task.env_id) or ""
        reward, terminated = 0.0, False
        for turn in range(task.max_turns):
            messages = Trajectory(tuple(opening), tuple(steps), dialogue_limit=ask.dialogue_limit).shown(turn)
            if prefix:
                messages = (*opening, *recent_turns(steps, ask.dialogue_limit, prefix))
            thoughts = thoughts_of(steps, messages, prefix) if ask.dialogue_limit != 0 else {}
            hints = info.get("hints") or {}
            thinking = clock()
            sampling = turn_sampling(spec, turn)
            if ask.stop:
                sampling = replace(sampling, stop=ask.stop)
            request = ChatRequest(messages, sampling, str(spec.key), hints, thoughts)
            picture = text_in(info, "picture", task.env_id) or ""
            request = replace(request, raw=ask.raw, prefill=ask.prefill, choices=ask.choices, picture=picture)
            reply = turn_of_policy(replace(request, turn=turn), turn)
            if ask.dialogue_limit is None and steps and 0 < reply.usage.prompt_tokens < steps[-1].prompt_tokens:
                notes.append(
                    f"turn {turn + 1}: {TRUNCATED_PROMPT} ({reply.usage.prompt_tokens} after {steps[-1].prompt_tokens})"
                )
            text = bounded(reply.text, limits.reply_chars, f"reply of turn {turn + 1}", notes)
            acted, meter = clock(), CallMeter()
            destroyed = ""
            try:
                answer = of_env("step", lambda text=text: env.step(text), limits.step_s, meter)  # type: ignore[misc]
            except PolicyFault as fault:
                destroyed = str(fault)
                notes.append(destroyed)
                answer = destroyed, 0.0, True, False, {"valid": False, "scores": dict.fromkeys(scores, 0.0)}
            ended = clock()
            observation, reward, terminated, truncated, info = step_answer(answer, task.env_id)
            scores.update(scores_in(info, task.env_id))
            said[:] = [text_in(info, "note", task.env_id) or said[0]]
            steps.append(
                Step(
                    reply=text,
                    action=text_in(info, "action", task.env_id),
                    observation=bounded(observation, limits.observation_chars, f"observation {turn + 1}", notes),
                    reward=reward,
                    valid=bool(info.get("valid", True)),
                    policy_s=acted - thinking,
                    env_s=max(0.0, ended - acted - meter.seconds),
                    prompt_tokens=reply.usage.prompt_tokens,
                    completion_tokens=reply.usage.completion_tokens,
                    version=reply.version,
                    reasoning=bounded(reply.reasoning, limits.reasoning_chars, f"thoughts {turn + 1}", notes),
                    waited_s=reply.waited_s,
                    outside=meter.counts,
                    choices=reply.choices,
                    pictured=bool(picture),
                )
            )
            if destroyed:
                return Outcome.SANDBOX_DESTROYED, 0.0
            if terminated or truncated:
                break
            if reached := limits.reached(steps):
                return reached, score_of(info, reward, task.env_id)
        return judge(steps, info, reward, terminated, task.env_id)
    finally:
        try:
            # After a call that hung, too: closing is what frees the process or connection that it hangs on.
            of_env("close", env.close, limits.close_s)
        except EnvironmentFault as fault:
            notes.append(f"after the end: {fault}")


def judge(
    steps: Sequence[Step], info: Mapping[str, Any], reward: float, terminated: bool, env_id: str
) -> tuple[Outcome, float | None]:
    """Outcome and score of an episode whose turns are over. ``info['score']`` goes before the last reward."""
    if info.get("outcome"):
        outcome = outcome_named(info["outcome"], env_id)
    elif info.get("solved"):
        outcome = Outcome.SOLVED
    else:
        outcome = Outcome.FAILED if terminated else Outcome.TURN_LIMIT
    if outcome is Outcome.TURN_LIMIT and steps and not any(step.valid for step in steps):
        outcome = Outcome.INVALID_ACTIONS
    return outcome, score_of(info, reward, env_id) if outcome.scored else None


def recent_turns(steps: Sequence[Step], dialogue_limit: int | None, prefix: str = "") -> list[Message]:
    """What a policy is shown of the past, its own replies framed by ``prefix``."""
    return [
        m for s in newest_steps(steps, dialogue_limit) for m in (*_own(s.reply, prefix), Message("user", s.observation))
    ]


def thoughts_of(steps: Sequence[Step], messages: Sequence[Message], prefix: str = "") -> dict[int, str]:
    """What was thought before those of the messages that are replies, by their places."""
    said = [step for step in steps if _own(step.reply, prefix)]
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    newest_steps = zip(reversed(places), reversed(said), strict=False)
    return {place: step.reasoning for place, step in newest_steps if step.reasoning}


def _own(reply: str, prefix: str) -> list[Message]:
    """A reply as its model is shown it. Where replies are framed, an empty one leaves no message (as MINT does)."""
    if not prefix:
        return [Message("assistant", reply)]
    if not reply.strip():
        return []
    return [Message("assistant", f"{'' if reply.lstrip().startswith(prefix) else prefix}{reply}\n")]
