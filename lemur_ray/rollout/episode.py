"""Plays one episode of an environment and a policy, turn by turn, and returns its outcome and record.

Every call that may hang (make, reset, step and close of the environment, reply of the policy) goes through ``call``
with its own deadline; ``rollout.calls.deadline`` describes what happens to a call that never returns. ``run_episode``
raises nothing but KeyboardInterrupt and the like: every error ends the attempt with an outcome that names its cause.

| event | outcome |
|---|---|
| the environment raises, hangs or breaks its protocol in make, reset or step | env_error |
| a sandbox could not be reset (SandboxQuarantined) and is never used again | env_error |
| the machine ended a sandbox (SandboxError with blame ``infra``) | infra_lost |
| in a step, the policy's code ended a sandbox (SandboxError with blame ``policy``) | sandbox_destroyed, scored 0 |
| the policy did not answer (PolicyUnreachable, or its deadline) | policy_unreachable |
| the endpoint refuses every request (EndpointRefused) | policy_unreachable, and the run ends |
| a service that the environment calls does not answer (ExternalCallError) | infra_lost |
| the episode used up its tokens, time or money (EpisodeLimits) | token_limit, time_limit, cost_limit |
| the conversation no longer fits the model (ContextOverflow) | context_overflow, scored 0 |
| the policy raises ValueError, and the environment declares a reply for that case | the environment gets that reply |
| any other exception | harness_bug |
| a call of a tool that was offered natively | the environment gets it as text (``text.tools_in_words``) |
| an empty, endless or senseless reply | the environment gets it like any other |
| no turns are left, and no action in them could be carried out | invalid_actions |

A task that has an option ``epoch`` gets the epoch in it. ``info`` of ``reset`` may hold ``system`` (system prompt),
``dialogue_limit`` (number of messages of past turns in a request; 0: the newest observation alone, in the place of the
first), ``reply_prefix`` (text before the policy's past replies in a request), ``ask`` (``env_protocol.RequestOptions``)
and ``hints`` (for policies without a model). Any ``info`` may hold ``picture`` (a PNG as a ``data:`` address, sent with
the observation and not recorded), ``state`` (a digest of the environment's state, for ``Trace``) and ``note`` (the
newest one is recorded beside the detail). The last ``info`` may
hold ``score``, if that is not the last reward, and ``scores`` by grader; after tool calls ``results`` has one text for
each, else the observation is the result; ``tools`` of a step are offered natively from the next request on."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from lemur_ray.agents.external_calls import CallMeter
from lemur_ray.agents.messages import (
    ChatReply,
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Policy,
    PolicyUnreachable,
)
from lemur_ray.agents.trajectory import Outcome, Step
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec, derive_seed, turn_sampling
from lemur_ray.rollout.calls.deadline import Call, DeadlineExceeded, call_directly
from lemur_ray.rollout.calls.env_protocol import EnvironmentFault, EnvResult, MachineFault, PolicyFault, QuarantineFault
from lemur_ray.rollout.calls.env_session import EnvSession, MakeEnv
from lemur_ray.rollout.episode_record import EpisodeRecord, TurnFile, env_reply
from lemur_ray.text.tools_in_words import read_calls


def make_by_id(env_id: str) -> Any:
    """Create the environment registered with Gymnasium under ``env_id``; ``MODULE:ID`` imports the module first."""
    return gymnasium.make(env_id, disable_env_checker=True)


def run_episode(
    spec: EpisodeSpec,
    policy: Policy,
    *,
    clock: Callable[[], float],
    call: Call = call_directly,
    make_env: MakeEnv = make_by_id,
) -> Attempt:
    """Play one episode to its end and return its outcome, score and record. Errors become outcomes; only
    KeyboardInterrupt and the like are raised. ``clock``: monotonic seconds; ``call``: makes the calls that may hang,
    with deadlines; ``make_env``: creates an environment from its id."""
    started = clock()
    record, turn_file = EpisodeRecord(spec.limits), TurnFile(spec)
    fatal_error, quarantined = "", False
    try:
        outcome, score = _TurnLoop(spec, policy, record, turn_file, clock, call).play(make_env)
    except Exception as error:
        outcome = outcome_of_error(error)
        score = 0.0 if outcome.scored else None
        bug = outcome is Outcome.HARNESS_BUG
        record.remarks.append("".join(traceback.format_exception(error))[-4000:] if bug else str(error))
        fatal_error = str(error) if isinstance(error, EndpointRefused) else ""
        quarantined = isinstance(error, QuarantineFault)
    finally:
        turn_file.remove()
    return replace(record.attempt(outcome, score, clock() - started, fatal_error), quarantined=quarantined)


def outcome_of_error(error: Exception) -> Outcome:
    """Outcome of an episode that ends with the exception ``error``; ``Outcome.HARNESS_BUG`` for any unforeseen one."""
    match error:
        case MachineFault():
            return Outcome.INFRA_LOST
        case EnvironmentFault():
            return Outcome.ENV_ERROR
        case PolicyUnreachable() | DeadlineExceeded():
            return Outcome.POLICY_UNREACHABLE
        case ContextOverflow():
            return Outcome.CONTEXT_OVERFLOW
    return Outcome.HARNESS_BUG


@dataclass
class _TurnLoop:
    spec: EpisodeSpec
    policy: Policy
    record: EpisodeRecord
    turn_file: TurnFile
    clock: Callable[[], float]
    call: Call

    def play(self, make_env: MakeEnv) -> tuple[Outcome, float | None]:
        """Play all turns; returns (outcome, score). If this raises, ``record`` has all turns until then."""
        task, limits, record = self.spec.task, self.spec.limits, self.record
        env = EnvSession(task.env_id, limits, self.call, make_env)
        try:
            result = env.reset(derive_seed(task.benchmark, task.id, self.spec.key.epoch), self._reset_options())
            record.begin(result)
            self.turn_file.write(record)
            for turn in range(task.max_turns):
                request = self._request(turn, result)
                asked_at = self.clock()
                reply = self._reply(request)
                reply = record.accept(reply)
                stepped_at, meter, destroyed = self.clock(), CallMeter(), False
                try:
                    result = env.step(env_reply(reply), meter)
                except PolicyFault as fault:
                    destroyed, result = True, self._destroyed(fault)
                env_s = max(0.0, self.clock() - stepped_at - meter.seconds)
                record.add_step(reply, result, stepped_at - asked_at, env_s, meter, request.picture_digest)
                self.turn_file.write(record)
                if destroyed:
                    return Outcome.SANDBOX_DESTROYED, 0.0
                if result.terminated or result.truncated:
                    break
                if limit := limits.reached(record.steps):
                    return limit, result.score
            return judge(record.steps, result)
        finally:
            try:
                env.close()
            except EnvironmentFault as fault:
                record.remarks.append(f"after the end: {fault}")

    def _reset_options(self) -> dict[str, Any]:
        options = dict(self.spec.task.options)
        if getattr(self.policy, "wants_hints", False):
            options["hints"] = True
        if "epoch" in options:
            options["epoch"] = self.spec.key.epoch
        return options

    def _request(self, turn: int, newest: EnvResult) -> ChatRequest:
        """The request of a turn, from 0. ``newest``: the environment's last result."""
        options, messages = self.record.request_options, self.record.messages()
        sampling = turn_sampling(self.spec, turn)
        return ChatRequest(
            messages,
            replace(sampling, stop=options.stop or sampling.stop),
            episode=str(self.spec.key),
            hints=newest.info.get("hints") or {},
            thoughts=self.record.reasoning(messages),
            raw=options.raw,
            prefill=options.prefill,
            choices=options.choices,
            turn=turn,
            picture=newest.text("picture") or "",
            tools=self.record.trajectory.tools_of(turn),
        )

    def _reply(self, request: ChatRequest) -> ChatReply:
        """The policy's reply, or the environment's reply for a ValueError. Raises the policy's errors,
        DeadlineExceeded, TypeError."""
        name, options = self.policy.name, self.record.request_options
        try:
            reply = self.call(lambda: self.policy.reply(request), self.spec.limits.policy_s, f"policy {name}")
        except ValueError as error:
            if not options.value_error_reply:
                raise
            turn = len(self.record.steps) + 1
            self.record.remarks.append(f"turn {turn}: policy {name} raised {type(error).__name__}: {error}")
            return ChatReply(options.reply_to(error))
        if not isinstance(reply, ChatReply):
            raise TypeError(f"policy {name} answered {type(reply).__name__}: expected ChatReply")
        if request.tools and reply.tool_calls is None:
            text, calls = read_calls(reply.text)
            return replace(reply, text=text, tool_calls=calls)
        return reply

    def _destroyed(self, fault: PolicyFault) -> EnvResult:
        """A result, with scores 0, for a step in which the policy's code destroyed its sandbox."""
        self.record.remarks.append(str(fault))
        info = {"valid": False, "scores": dict.fromkeys(self.record.scores, 0.0)}
        return EnvResult(self.spec.task.env_id, str(fault), info, terminated=True)


def judge(steps: Sequence[Step], result: EnvResult) -> tuple[Outcome, float | None]:
    """(outcome, score) after the last turn, from the environment's last result; the score is None if the outcome is not
    scored. Raises EnvironmentFault if the result is invalid."""
    outcome = result.outcome
    if outcome is None:
        unsolved = Outcome.FAILED if result.terminated else Outcome.TURN_LIMIT
        outcome = Outcome.SOLVED if result.info.get("solved") else unsolved
    if outcome is Outcome.TURN_LIMIT and steps and not any(step.valid for step in steps):
        outcome = Outcome.INVALID_ACTIONS
    return outcome, result.score if outcome.scored else None
