"""One episode: what ends it, and whose fault that is."""

import itertools
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from lemur_ray.agents.baselines.scripted import ExpertPolicy, RandomPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow, PolicyUnreachable, Sampling, Usage
from lemur_ray.agents.trajectory import Blame, EpisodeKey, Outcome, Task
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.calls.deadline import CompanionThread, DeadlineExceeded
from lemur_ray.rollout.episode import run_episode
from lemur_ray.sandbox.sandbox import SandboxDestroyed
from tests.rollout import toy
from tests.rollout.scripted_policy import ScriptedPolicy
from tests.rollout.toy import toy_task

QUICK_S = 0.2
"""Of the one call that hangs; a healthy one may need longer on a busy machine."""


class Answering:
    """A policy made of a function; remembers what it was asked."""

    name = "answering"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[ChatRequest] = []

    def reply(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        return self.answer(request)


def play(task: Task, policy: Any, limits: EpisodeLimits | None = None, epoch: int = 0, call: Any = None) -> Attempt:
    spec = EpisodeSpec(EpisodeKey("toy", task.id, policy.name, "r", epoch), task, Sampling(), limits or EpisodeLimits())
    ticks = itertools.count()
    extra = {"call": call} if call else {}
    return run_episode(spec, policy, clock=lambda: float(next(ticks)), **extra)


def raising(error: Exception) -> Answering:
    def answer(request: ChatRequest) -> ChatReply:
        raise error

    return Answering(answer)


def test_the_expert_solves_the_toy_and_the_record_holds_every_turn():
    attempt = play(toy_task(length=3), ExpertPolicy())
    assert attempt.outcome is Outcome.SOLVED
    assert attempt.score == 1.0
    assert [s.action for s in attempt.trajectory.steps] == ["right"] * 3
    assert [m.role for m in attempt.trajectory.messages()] == ["system", "user"] + ["assistant", "user"] * 3
    assert all(s.policy_s > 0 and s.env_s > 0 for s in attempt.trajectory.steps)


def test_running_out_of_turns_is_scored_as_such():
    attempt = play(toy_task(length=9), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (Outcome.TURN_LIMIT, 0.0)


def test_an_end_that_is_no_success_is_a_failure():
    attempt = play(toy_task(max_turns=20), ScriptedPolicy(["left"]))
    assert (attempt.outcome, attempt.score) == (Outcome.FAILED, 0.0)
    assert len(attempt.trajectory.steps) == 6


@pytest.mark.parametrize("reply", ["", "  \n", "do a barrel roll", "<|im_end|>", "\ud800 \0", "x" * 200_000])
def test_a_senseless_reply_costs_turns_and_is_scored(reply: str):
    attempt = play(toy_task(), ScriptedPolicy([reply]))
    assert (attempt.outcome, attempt.score) == (Outcome.INVALID_ACTIONS, 0.0)
    assert len(attempt.trajectory.steps) == 5
    assert all(
        len(s.reply) <= EpisodeLimits().reply_chars and s.observation == "not an action"
        for s in attempt.trajectory.steps
    )
    assert ("200000 characters, cut to 16384" in attempt.detail) == (len(reply) > 16384)
    assert all("\0" not in s.reply and s.reply.encode("utf-8") is not None for s in attempt.trajectory.steps)


def test_one_valid_turn_is_enough_not_to_be_called_invalid_actions():
    attempt = play(toy_task(), ScriptedPolicy(["right", "?"]))
    assert attempt.outcome is Outcome.TURN_LIMIT


def test_a_conversation_that_no_longer_fits_is_scored_zero():
    attempt = play(toy_task(), raising(ContextOverflow("1100 tokens, context 1024")))
    assert (attempt.outcome, attempt.score) == (Outcome.CONTEXT_OVERFLOW, 0.0)
    assert "1100 tokens" in attempt.detail


def test_an_unreachable_policy_is_not_scored():
    attempt = play(toy_task(), raising(PolicyUnreachable("nobody at home")))
    assert (attempt.outcome, attempt.score) == (Outcome.POLICY_UNREACHABLE, None)
    assert attempt.detail == "nobody at home"
    assert len(attempt.trajectory.opening) == 2


@pytest.mark.parametrize("fault", ["raise", "exit"])
@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_environment_that_raises_is_to_blame_itself(where: str, fault: str):
    attempt = play(toy_task(name=f"{where}-{fault}", **{where: fault}), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (Outcome.ENV_ERROR, None)
    assert attempt.outcome.blame is Blame.ENV
    assert where in attempt.detail
    assert "toy.py" in attempt.detail or "SystemExit" in attempt.detail
    assert f"{where}-{fault}" in toy.closed


def test_an_environment_that_raises_in_close_keeps_its_score():
    attempt = play(toy_task(close="raise"), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (Outcome.SOLVED, 1.0)
    assert "after the end" in attempt.detail


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_environment_that_hangs_is_cut_at_its_deadline(where: str):
    call = CompanionThread("test")
    started = time.monotonic()
    attempt = play(toy_task(**{where: "hang"}), ExpertPolicy(), EpisodeLimits(**{f"{where}_s": QUICK_S}), call=call)
    assert time.monotonic() - started < 50
    assert attempt.outcome is Outcome.ENV_ERROR
    assert f"{where} did not return within 0.2 s" in attempt.detail
    assert call.abandoned == 1


def test_a_policy_that_never_answers_is_unreachable():
    call = CompanionThread("test")
    attempt = play(
        toy_task(), Answering(lambda request: threading.Event().wait()), EpisodeLimits(policy_s=QUICK_S), call=call
    )
    assert attempt.outcome is Outcome.POLICY_UNREACHABLE
    assert "did not return within 0.2 s" in attempt.detail


@pytest.mark.parametrize("answer", ["right", None, 7])
def test_a_policy_of_the_wrong_type_is_a_bug_of_the_harness(answer: Any):
    attempt = play(toy_task(), Answering(lambda request: answer))
    assert (attempt.outcome, attempt.score) == (Outcome.HARNESS_BUG, None)
    assert f"answered {type(answer).__name__}: expected ChatReply" in attempt.detail


def test_an_unforeseen_exception_of_a_policy_is_a_bug_of_the_harness_with_its_trace():
    attempt = play(toy_task(), raising(KeyError("surprise")))
    assert attempt.outcome is Outcome.HARNESS_BUG
    assert "surprise" in attempt.detail
    assert "Traceback" in attempt.detail


@pytest.mark.parametrize(
    ("step_info", "outcome", "score"),
    [
        ({"outcome": "sandbox_destroyed"}, Outcome.SANDBOX_DESTROYED, 0.0),
        ({"outcome": "env_error"}, Outcome.ENV_ERROR, None),
        ({"outcome": "no such thing"}, Outcome.ENV_ERROR, None),
        ({"score": 0.25}, Outcome.TURN_LIMIT, 0.25),
    ],
)
def test_the_environment_may_name_outcome_and_score(step_info: dict[str, Any], outcome: Outcome, score: float | None):
    attempt = play(toy_task(length=99, step_info=step_info), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (outcome, score)


@pytest.mark.parametrize(
    "answer",
    [None, "text", ("o", 0.0, False, {}), (b"o", 0.0, False, False, {}), ("o", float("nan"), False, False, {})],
)
def test_an_environment_that_breaks_its_protocol_is_to_blame_itself(answer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toy.LineEnv, "step", lambda self, reply: answer)
    attempt = play(toy_task(), ExpertPolicy())
    assert attempt.outcome is Outcome.ENV_ERROR
    assert "step returned" in attempt.detail
    assert "expected" in attempt.detail


@pytest.mark.parametrize(
    "step_info",
    [{"score": float("nan")}, {"score": "abc"}, {"score": 10**400}, {"score": None}, {"action": ["right"]}],
)
def test_a_score_or_action_of_another_kind_is_the_environments_fault(step_info: dict[str, Any]):
    attempt = play(toy_task(step_info=step_info), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (Outcome.ENV_ERROR, None)
    assert f"info['{next(iter(step_info))}'] is" in attempt.detail


@pytest.mark.parametrize("reset_info", [{"system": 3}, {"dialogue_limit": "5"}])
def test_an_opening_of_another_kind_is_the_environments_fault(reset_info: dict[str, Any]):
    attempt = play(toy_task(reset_info=reset_info), ExpertPolicy())
    assert attempt.outcome is Outcome.ENV_ERROR
    assert f"info['{next(iter(reset_info))}'] is" in attempt.detail


def test_an_unknown_environment_is_an_environment_error():
    task = Task("toy", "t", "tests.rollout.toy:toy/Nowhere-v0", "line")
    assert play(task, ExpertPolicy()).outcome is Outcome.ENV_ERROR


def test_seeds_depend_on_task_epoch_and_turn_and_nothing_else():
    def seeds(name: str, epoch: int) -> list[int]:
        policy = Answering(lambda request: ChatReply("right"))
        play(toy_task(name), policy, epoch=epoch)
        return [request.sampling.seed for request in policy.asked]

    assert seeds("a", 0) == seeds("a", 0)
    assert len({*seeds("a", 0), *seeds("a", 1), *seeds("b", 0)}) == 9
    first = play(toy_task("a"), ExpertPolicy()).trajectory.opening[-1].content
    assert first == play(toy_task("a"), ScriptedPolicy(["left"])).trajectory.opening[-1].content
    assert first != play(toy_task("a"), ExpertPolicy(), epoch=1).trajectory.opening[-1].content


def test_hints_go_to_policies_that_ask_for_them_and_to_no_other():
    model = Answering(lambda request: ChatReply("right"))
    play(toy_task(), model)
    assert all(request.hints == {} for request in model.asked)
    assert play(toy_task(), RandomPolicy()).outcome in (Outcome.TURN_LIMIT, Outcome.SOLVED)
    assert {s.action for s in play(toy_task(max_turns=40, length=99), RandomPolicy()).trajectory.steps} == {
        "left",
        "right",
    }


def test_a_scripted_policy_without_its_hint_says_which_one_is_missing():
    attempt = play(toy_task(reset_info={"hints": {"expert": "right"}}), RandomPolicy())
    assert attempt.outcome is Outcome.HARNESS_BUG
    assert "'admissible'" in attempt.detail


def test_usage_is_recorded_per_turn():
    attempt = play(toy_task(), Answering(lambda request: ChatReply("right", usage=Usage(11, 2, 3))))
    assert {(s.prompt_tokens, s.completion_tokens) for s in attempt.trajectory.steps} == {(11, 2)}


def test_the_prompt_of_a_discarded_request_does_not_make_the_next_one_look_truncated():
    usages = iter([Usage(11, 2).with_discarded(Usage(11, 16)), Usage(18, 2)])
    attempt = play(toy_task(), Answering(lambda request: ChatReply("right", usage=next(usages, Usage(30, 2)))))
    assert [s.prompt_tokens for s in attempt.trajectory.steps][:2] == [22, 18]
    assert attempt.truncated_prompts == 0


def test_a_dialogue_limit_shows_only_the_newest_whole_turns():
    policy = Answering(lambda request: ChatReply("right"))
    attempt = play(toy_task(length=5, reset_info={"dialogue_limit": 5}), policy)
    assert [len(request.messages) for request in policy.asked] == [2, 4, 6, 6, 6]
    assert [m.content for m in policy.asked[-1].messages[2:]] == ["right", "at 3", "right", "at 4"]
    assert len(attempt.trajectory.messages()) == 12
    assert len(replace(attempt.trajectory, dialogue_limit=1).shown(5)) == 4


def test_a_companion_thread_hands_on_results_and_exceptions_and_survives_an_abandoned_call():
    call = CompanionThread("test")
    assert call(lambda: 7, 60, "seven") == 7
    with pytest.raises(ZeroDivisionError):
        call(lambda: 1 / 0, 60, "division")
    release = threading.Event()
    with pytest.raises(DeadlineExceeded, match=r"wait did not return within 0.05 s"):
        call(release.wait, 0.05, "wait")
    assert call(lambda: 8, 60, "eight") == 8
    release.set()
    assert call.abandoned == 1
    call.close()
    call.close()


@pytest.mark.parametrize("what", ["destroyed by the policy", "unreadable"])
def test_what_the_policy_did_to_its_sandbox_is_scored_wherever_the_environment_noticed_it(what: str):
    attempt = play(toy_task(step=what), ScriptedPolicy(["right"]))
    assert (attempt.outcome, attempt.score) == (Outcome.SANDBOX_DESTROYED, 0.0)
    assert len(attempt.trajectory.steps) == 1, "the turn that did it is on record"
    assert attempt.trajectory.steps[0].reply == "right"


def test_before_its_first_turn_and_after_its_last_nothing_is_the_policys_doing():
    assert play(toy_task(reset="destroyed by the policy"), ExpertPolicy()).outcome is Outcome.ENV_ERROR
    attempt = play(toy_task(close="destroyed by the policy"), ExpertPolicy())
    assert (attempt.outcome, attempt.score) == (Outcome.SOLVED, 1.0)
    assert play(toy_task(step="destroyed by the machine"), ExpertPolicy()).outcome is Outcome.INFRA_LOST


def test_the_scores_of_several_graders_go_with_the_sandbox():
    task = toy_task(length=9, step_info={"scores": {"kind": 1.0, "strict": 0.0}})
    destroys = ["right", "right", "right"]

    class Wrecking(toy.LineEnv):
        def fault(self, where: str) -> None:
            if where == "step" and self.at == 2:
                raise SandboxDestroyed("by itself", "policy")

    spec = EpisodeSpec(EpisodeKey("toy", "t", "p", "r"), task)
    attempt = run_episode(spec, ScriptedPolicy(destroys), clock=time.monotonic, make_env=lambda name: Wrecking())
    assert attempt.outcome is Outcome.SANDBOX_DESTROYED
    assert attempt.scores == {"kind": 0.0, "strict": 0.0}


def test_what_an_environment_notes_is_kept_wherever_the_episode_ends():
    def answer(request: ChatRequest) -> ChatReply:
        if request.turn == 2:
            raise ContextOverflow("too long")
        return ChatReply("right", usage=Usage(10, 10))

    noting = toy_task(length=9, reset_info={"note": "begun"}, step_info={"note": "counts: 3"})
    assert play(noting, Answering(answer)).note == "counts: 3"
    limited = play(noting, Answering(answer), EpisodeLimits(tokens=15))
    assert (limited.outcome, limited.note) == (Outcome.TOKEN_LIMIT, "counts: 3")
    assert play(noting, raising(PolicyUnreachable("gone"))).note == "begun"


def test_a_policys_value_error_is_what_the_protocol_says_or_else_a_bug_of_the_harness():
    protocol = {"ask": {"on_value_error": "left {error}"}}
    policy = raising(ValueError("no `action`\nin 'x'"))
    attempt = play(toy_task(max_turns=2, reset_info=protocol), policy)
    assert [step.reply for step in attempt.trajectory.steps] == ["left no action in x"] * 2
    assert attempt.outcome.scored
    assert "turn 1: policy answering raised ValueError: no `action`" in attempt.detail
    assert play(toy_task(), policy).outcome is Outcome.HARNESS_BUG
    assert play(toy_task(reset_info=protocol), raising(TypeError("x"))).outcome is Outcome.HARNESS_BUG


def test_an_environment_is_told_the_epoch_where_its_task_has_an_option_for_it():
    assert play(toy_task(length=4, epoch=1), ExpertPolicy(), epoch=4).trajectory.opening[-1].content.endswith("epoch 4")
    assert "epoch" not in play(toy_task(), ExpertPolicy(), epoch=4).trajectory.opening[-1].content
