"""The simulated user: what it is told, what becomes of its answer, and what of its silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envs.mint.recording import read_recording
from envs.mint.teacher import (
    BAD,
    GOOD,
    FeedbackMissing,
    ModelTeacher,
    RecordedTeacher,
    Situation,
    binary,
)
from lemur_ray.agents.external_calls import CallMeter, use_meter
from lemur_ray.agents.messages import (
    ChatReply,
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    PolicyUnreachable,
    RequestRefused,
)
from lemur_ray.agents.openai_policy import OpenAIPolicy
from tests.envs.mint.picky_teacher import LONGEST, picky_teacher

SITUATION = Situation(
    subset="gsm8k",
    task_id="3",
    turn=0,
    example="intro\nTask:\nexample task\n\nExpert feedback:\nThis is BAD.",
    tools="[1] wikipedia_search(query: str) -> str",
    prompt="How many?",
    dialogue=(Message("assistant", "<execute>1+1</execute>"),),
    observation="Observation:\nOut[1]: 2\nYou have 4 steps left and 2 chances to propose solution left.\n",
    solution="42",
)


class Scripted:
    """Says its lines one after another; an exception among them is raised."""

    name = "scripted"

    def __init__(self, *lines: str | Exception) -> None:
        self.lines, self.asked = list(lines), []  # type: ignore[var-annotated]

    def reply(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ChatReply(line)


def test_the_teacher_sees_example_tools_and_trajectory_and_not_the_solution() -> None:
    policy = Scripted("This is GOOD. Go on. ")
    assert ModelTeacher(policy).feedback(SITUATION) == "This is GOOD. Go on."
    (request,) = policy.asked
    text = request.messages[0].content
    parts = [
        "\n---\n",
        "Task:\nexample task",
        "wikipedia_search",
        "Task:\nHow many?",
        "Assistant:\n<execute>",
        "Out[1]: 2",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "NOT GIVEN" in text
    assert "42" not in text
    assert text.endswith("Expert feedback:")
    assert request.sampling.temperature == 0
    assert request.sampling.max_tokens == 1024
    assert "\nTask:" in request.sampling.stop


def test_ground_truth_is_shown_where_it_is_asked_for() -> None:
    policy = Scripted("This is BAD.")
    ModelTeacher(policy, ground_truth=True).feedback(SITUATION)
    assert "42" in policy.asked[0].messages[0].content
    assert "NOT GIVEN" not in policy.asked[0].messages[0].content


@pytest.mark.parametrize(
    ("said", "verdict"),
    [("This is GOOD. But BAD later.", GOOD), ("It is bad!", BAD), ("Hm.", ""), ("GOOD or BAD?", ""), ("goodness", "")],
)
def test_binary_feedback_is_the_first_sentence(said: str, verdict: str) -> None:
    assert binary(said) == verdict


def test_a_silent_teacher_is_asked_again_and_then_missing() -> None:
    policy = Scripted(PolicyUnreachable("down"), "This is GOOD.")
    assert ModelTeacher(policy, "binary").feedback(SITUATION) == GOOD
    with pytest.raises(FeedbackMissing, match="scripted"):
        ModelTeacher(Scripted("", PolicyUnreachable("down"))).feedback(SITUATION)


def test_a_teacher_with_nothing_to_say_says_nothing_and_that_is_counted() -> None:
    with use_meter(meter := CallMeter()):
        assert ModelTeacher(Scripted("", "  ")).feedback(SITUATION) == ""
        assert ModelTeacher(Scripted("Hm.", "Well."), "binary").feedback(SITUATION) == ""
    assert meter.counts["teacher"]["unsaid"] == 2


def test_words_that_an_endpoint_does_not_take_are_theirs_only_if_it_takes_others() -> None:
    policy = Scripted(RequestRefused("status 400"), "yes")
    assert ModelTeacher(policy).feedback(SITUATION) == ""
    quoting, ours = policy.asked
    assert quoting.quotes
    assert not ours.quotes
    assert "1+1" not in ours.text
    with pytest.raises(FeedbackMissing, match="scripted"):
        ModelTeacher(Scripted(*[RequestRefused("status 400")] * 4)).feedback(SITUATION)
    with pytest.raises(EndpointRefused):
        ModelTeacher(Scripted(RequestRefused("status 400"), EndpointRefused("refused"))).feedback(SITUATION)


def test_a_trajectory_that_is_too_long_is_shown_without_its_oldest_turns() -> None:
    said = [Message(role, f"{role} {n}: {'x' * 5000}") for n in range(6) for role in ("assistant", "user")]  # type: ignore[arg-type]
    long = replace(SITUATION, dialogue=(*said, Message("assistant", "the last")))
    policy = Scripted(ContextOverflow("long"), ContextOverflow("long"), "This is GOOD.", "This is BAD.")
    teacher = ModelTeacher(policy)
    with use_meter(meter := CallMeter()):
        assert teacher.feedback(long) == GOOD
        assert teacher.feedback(long) == BAD
    assert meter.counts["teacher"]["shortened"] == 2
    whole, *_, shown, again = [request.text for request in policy.asked]
    assert "assistant 0" in whole
    assert "assistant 0" not in shown
    assert all(part in shown for part in ("Task:\nHow many?", "assistant 5", "the last", "Out[1]: 2"))
    assert again == shown, "what was too long once is not tried again"
    with pytest.raises(FeedbackMissing, match="context is too short"):
        ModelTeacher(Scripted(*[ContextOverflow("long")] * 20)).feedback(long)


@pytest.fixture(scope="module")
def picky() -> Iterator[str]:
    with picky_teacher() as url:
        yield url


@pytest.mark.parametrize(
    ("reply", "feedback"),
    [
        ("I think " * LONGEST, BAD),
        ("something forbidden", ""),
        ("something banned", ""),
        ("say nothing", ""),
        ("5", BAD),
    ],
    ids=lambda text: text[:20],
)
def test_a_real_endpoint_is_not_lost_by_what_a_policy_says(picky: str, reply: str, feedback: str) -> None:
    policy = OpenAIPolicy(picky, "t")
    for _ in range(4):  # more than the refusals that end a run
        situation = replace(SITUATION, dialogue=(Message("assistant", reply),))
        assert ModelTeacher(policy).feedback(situation) == feedback
    policy.close()


def test_an_endpoint_that_takes_no_question_at_all_still_ends_the_run(picky: str) -> None:
    policy = OpenAIPolicy(picky.replace("/v1", "/closed"), "t")
    with pytest.raises(FeedbackMissing):
        ModelTeacher(policy).feedback(SITUATION)
    with pytest.raises(EndpointRefused, match="the first 3 requests were refused"):
        ModelTeacher(policy).feedback(SITUATION)
    policy.close()


def test_recorded_feedback_is_repeated(data_dir: Path) -> None:
    log = read_recording(data_dir / "mint/outputs/gpt-3.5-turbo-0613/F=gpt-4-0613/gsm8k.results.jsonl.gz")
    logged = next(e for e in log.episodes.values() if e.turns[0].feedback)
    teacher = RecordedTeacher(log)
    situation = Situation("gsm8k", logged.task, 0, "", "", "", (), "")
    assert teacher.feedback(situation) == logged.turns[0].feedback
    with pytest.raises(FeedbackMissing, match="no such"):
        teacher.feedback(Situation("gsm8k", "no such", 0, "", "", "", (), ""))
