"""A teacher that gives the solution away: what is taken out, what is left, and what is only counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envs.mint.sources import teacher_of
from envs.mint.teacher import WITHHELD, ModelTeacher, Situation, without_solution
from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import Endpoint, EndpointOptions
from lemur_ray.agents.external_calls import CallMeter, register_endpoints, use_meter
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Message, Usage
from tests.agents.misbehaving import completion, refusal, serving_in_turn

ASSERTS = 'assert lower_case("aab_cbbbc")==("Found a match!")\nassert lower_case("aab")==("Not matched!")'


@pytest.mark.parametrize(
    ("feedback", "solution", "found"),
    [
        ("It should be 1430.", "1430", f"It should be {WITHHELD}."),
        ("It should be 1,430, so 1430.0 is right.", "1430.0", f"It should be {WITHHELD}, so {WITHHELD} is right."),
        ("You have 6 steps; the answer is 6.", "6", f"You have 6 steps; the answer is {WITHHELD}."),
        ("Yes, go on. The answer: yes.", "yes", f"Yes, go on. The answer: {WITHHELD}."),
        ("The correct option is (c).", "c", f"The correct option is ({WITHHELD})."),
        ("Look at Marie Curie's life.", "Marie Curie", f"Look at {WITHHELD}'s life."),
        ("This is BAD. Check your units.", "1430", "This is BAD. Check your units."),
        ("This is BAD. 14301 is too much.", "1430", "This is BAD. 14301 is too much."),
        ("12 apples were given.", "12", "12 apples were given."),
        (f"Try this:\n{ASSERTS}\nGood luck.", ASSERTS, f"Try this:\n{WITHHELD}\n{WITHHELD}\nGood luck."),
        ("Anything.", "", "Anything."),
    ],
)
def test_what_gives_the_solution_away_is_taken_out_and_nothing_else(feedback: str, solution: str, found: str) -> None:
    assert without_solution(feedback, solution, "There are 12 apples. (a) 1 (b) 2 (c) 3", "I think it is 7.") == found


def test_what_the_assistant_said_itself_is_no_secret() -> None:
    assert "1430" in without_solution("1430 is right, propose it.", "1430", "Is it 1430?", "Is it 1430?")


SITUATION = Situation(
    "gsm8k", "3", 0, "Task:\nx", "", "How many?", (Message("assistant", "<execute>1</execute>"),), "1", "1430"
)


class Telling:
    name = "telling"

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)

    def reply(self, request: ChatRequest) -> ChatReply:
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return ChatReply(line, usage=Usage(30, 3))


def asked(policy: Telling, **more: Any) -> tuple[str, Any]:
    meter = CallMeter()
    with use_meter(meter):
        said = ModelTeacher(policy, **more).feedback(SITUATION)
    return said, meter.counts["teacher"]


def test_a_teacher_that_knows_the_solution_and_tells_it_is_asked_again_and_then_cut() -> None:
    said, counts = asked(Telling("It is 1430.", "This is BAD."), ground_truth=True)
    assert (said, counts["disclosed"], counts["prompt_tokens"], counts["calls"]) == ("This is BAD.", 1, 60, 1)
    said, counts = asked(Telling("It is 1430.", "Still 1430."), ground_truth=True)
    assert (said, counts["disclosed"]) == (f"Still {WITHHELD}.", 2)


def test_a_teacher_that_found_the_solution_by_itself_is_counted_and_left() -> None:
    said, counts = asked(Telling("It is 1430."))
    assert (said, counts["disclosed"], counts["completion_tokens"]) == ("It is 1430.", 1, 3)


def test_a_teacher_whose_endpoint_refuses_for_good_is_not_asked_again() -> None:
    with pytest.raises(EndpointRefused, match="401"):
        asked(Telling(EndpointRefused("status 401"), "never"))


def test_the_situation_of_a_program_is_searched_line_by_line() -> None:
    situation = replace(SITUATION, solution=ASSERTS)
    told = ModelTeacher(Telling(ASSERTS, ASSERTS), ground_truth=True).feedback(situation)
    assert told == f"{WITHHELD}\n{WITHHELD}"


def test_the_teachers_endpoint_gets_its_own_key_and_fields_and_nobody_elses() -> None:
    with serving_in_turn(completion("This is GOOD.")) as server:
        options = EndpointOptions(Key("teachers-key-01", flag="--teacher-key-env"), body='{"temperature": null}')
        register_endpoints(Endpoint(server.url, "expert", options))
        teacher_of(f"openai:{server.url}#expert", "textual", False).feedback(SITUATION)
        teacher_of(f"openai:{server.url}#other", "textual", False).feedback(SITUATION)
    assert [headers.get("authorization") for headers in server.headers] == ["Bearer teachers-key-01", None]
    assert ["temperature" in asked for asked in server.asked] == [False, True]
    with serving_in_turn(refusal(401)) as server:
        register_endpoints(Endpoint(server.url, "expert", EndpointOptions(Key(flag="--teacher-key-env"))))
        teacher = teacher_of(f"openai:{server.url}#expert", "textual", False)
        with pytest.raises(EndpointRefused, match="--teacher-key-env"):
            teacher.feedback(SITUATION)
