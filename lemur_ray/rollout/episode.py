"""One episode, from reset to its end: an environment and a policy in, an outcome with a blame out.

Every call that may hang (make, reset, step, close of the environment; reply of the policy) goes through ``call`` with
its own deadline; ``rollout.deadline`` says what becomes of a call that never returns. Nothing raises out of
``run_episode`` but KeyboardInterrupt and its like: whatever goes wrong ends the attempt and says whose fault it was.

| what happened | outcome |
|---|---|
| the environment raises, hangs or breaks its protocol in make, reset or step | env_error |
| a sandbox did not come back clean (SandboxQuarantined): it is never used again | env_error |
| the machine ended a sandbox (SandboxDestroyed with the blame ``infra``) | infra_lost |
| the policy did not answer (PolicyUnreachable, or its deadline) | policy_unreachable |
| the conversation no longer fits the model (ContextOverflow) | context_overflow, scored 0 |
| anything else raises | harness_bug |
| an empty, endless or senseless reply | goes to the environment like any other, which says what it is |
| the turns ran out and no action of them could be carried out | invalid_actions |

At reset an environment may say ``info['system']`` (system prompt), ``info['dialogue_limit']`` (messages of past turns
that a policy is shown), ``info['reply_prefix']`` (what its own replies then begin with) and ``info['hints']``; at the
end ``info['score']`` where the score is not the last reward, and ``info['scores']`` where there are several graders.

Knows nothing of Ray, of retries or of where episodes are stored.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow, Message, Policy, PolicyUnreachable
from lemur_ray.agents.trajectory import Outcome, Step, Trajectory
from lemur_ray.rollout.attempt import Attempt, Order, seed_of, turn_sampling
from lemur_ray.rollout.border import (
    EnvironmentFault,
    MachineFault,
    bounded,
    count_in,
    outcome_named,
    reset_answer,
    score_of,
    scores_in,
    step_answer,
    text_in,
)
from lemur_ray.rollout.deadline import Call, DeadlineExceeded, call_directly
from lemur_ray.sandbox.sandbox import SandboxDestroyed, SandboxQuarantined, SandboxUnavailable

MakeEnv = Callable[[str], Any]


def make_by_id(env_id: str) -> Any:
    """The environment behind a gymnasium id; ``module:id`` imports the module first."""
    return gymnasium.make(env_id, disable_env_checker=True)


def run_episode(
    order: Order,
    policy: Policy,
    *,
    clock: Callable[[], float],
    call: Call = call_directly,
    make_env: MakeEnv = make_by_id,
) -> Attempt:
    """Play one episode to its end. ``clock`` gives monotonic seconds."""
    started = clock()
    opening: list[Message] = []
    steps: list[Step] = []
    notes: list[str] = []
    scores: dict[str, float] = {}
    outcome: Outcome
    score: float | None
    try:
        outcome, score = _play(order, policy, opening, steps, notes, scores, clock, call, make_env)
    except EnvironmentFault as fault:
        outcome, score = Outcome.INFRA_LOST if isinstance(fault, MachineFault) else Outcome.ENV_ERROR, None
        notes.append(str(fault))
    except (PolicyUnreachable, DeadlineExceeded) as error:
        outcome, score = Outcome.POLICY_UNREACHABLE, None
        notes.append(str(error))
    except ContextOverflow as error:
        outcome, score = Outcome.CONTEXT_OVERFLOW, 0.0
        notes.append(str(error))
    except Exception as error:  # what nobody foresaw is by definition the harness's fault, never the policy's
        outcome, score = Outcome.HARNESS_BUG, None
        notes.append("".join(traceback.format_exception(error))[-4000:])
    detail = bounded("; ".join(notes), 8000, "detail", [])
    return Attempt(outcome, score, Trajectory(tuple(opening), tuple(steps)), clock() - started, detail, scores)


def _play(
    order: Order,
    policy: Policy,
    opening: list[Message],
    steps: list[Step],
    notes: list[str],
    scores: dict[str, float],
    clock: Callable[[], float],
    call: Call,
    make_env: MakeEnv,
) -> tuple[Outcome, float | None]:
    """The turns of an episode. What it fills as it goes (``opening`` to ``scores``) outlives an exception."""
    task, limits = order.task, order.limits

    def of_env(what: str, function: Callable[[], Any], timeout_s: float) -> Any:
        try:
            return call(function, timeout_s, f"{task.env_id}: {what}")
        except DeadlineExceeded as error:
            raise EnvironmentFault(str(error)) from error
        except SandboxQuarantined as error:
            # An environment lives for one attempt, so the sandbox goes with it; the pool it is from has dropped it.
            raise EnvironmentFault(f"{task.env_id}: {what}: a sandbox was put in quarantine: {error}") from error
        except (SandboxDestroyed, SandboxUnavailable) as error:
            fault = MachineFault if error.blame == "infra" else EnvironmentFault
            raise fault(f"{task.env_id}: {what}: {error}") from error
        except (Exception, SystemExit) as error:
            last_lines = "".join(traceback.format_exception(error)[-2:]).strip()
            raise EnvironmentFault(f"{task.env_id}: {what} raised: {last_lines[-2000:]}") from error

    def turn_of_policy(request: ChatRequest) -> ChatReply:
        reply = call(lambda: policy.reply(request), limits.policy_s, f"policy {policy.name}")
        if not isinstance(reply, ChatReply):
            raise TypeError(f"policy {policy.name} answered {type(reply).__name__}: expected ChatReply")
        return reply

    env = of_env("make", lambda: make_env(task.env_id), limits.make_s)
    try:
        options = {**task.options, "hints": True} if getattr(policy, "wants_hints", False) else dict(task.options)
        seed = seed_of(task.benchmark, task.id, order.key.epoch)
        answer = of_env("reset", lambda: env.reset(seed=seed, options=options), limits.reset_s)
        observation, info = reset_answer(answer, task.env_id)
        if system := text_in(info, "system", task.env_id):
            opening.append(Message("system", system))
        opening.append(Message("user", bounded(observation, limits.observation_chars, "first observation", notes)))
        dialogue_limit = count_in(info, "dialogue_limit", task.env_id)
        prefix = text_in(info, "reply_prefix", task.env_id) or ""
        reward, terminated = 0.0, False
        for turn in range(task.max_turns):
            messages = (*opening, *recent_turns(steps, dialogue_limit, prefix))
            hints = info.get("hints") or {}
            asked = clock()
            reply = turn_of_policy(ChatRequest(messages, turn_sampling(order, turn), str(order.key), hints))
            text = bounded(reply.text, limits.reply_chars, f"reply of turn {turn + 1}", notes)
            acted = clock()
            answer = of_env("step", lambda text=text: env.step(text), limits.step_s)  # type: ignore[misc]
            observation, reward, terminated, truncated, info = step_answer(answer, task.env_id)
            scores.update(scores_in(info, task.env_id))
            steps.append(
                Step(
                    reply=text,
                    action=text_in(info, "action", task.env_id),
                    observation=bounded(observation, limits.observation_chars, f"observation {turn + 1}", notes),
                    reward=reward,
                    valid=bool(info.get("valid", True)),
                    policy_s=acted - asked,
                    env_s=clock() - acted,
                    prompt_tokens=reply.usage.prompt_tokens,
                    completion_tokens=reply.usage.completion_tokens,
                    version=reply.version,
                )
            )
            if terminated or truncated:
                break
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
    """What a policy is shown of the past: every turn, or the newest whole turns that fit ``dialogue_limit`` messages.

    At least one turn, and whole ones, so that roles go on alternating. The record of an episode keeps everything.
    """
    shown = steps if dialogue_limit is None else steps[-max(1, dialogue_limit // 2) :]
    return [m for s in shown for m in (*_own(s.reply, prefix), Message("user", s.observation))]


def _own(reply: str, prefix: str) -> list[Message]:
    """A reply as its model is shown it. Where replies are framed, an empty one leaves no message (as MINT does)."""
    if not prefix:
        return [Message("assistant", reply)]
    if not reply.strip():
        return []
    return [Message("assistant", f"{'' if reply.lstrip().startswith(prefix) else prefix}{reply}\n")]
