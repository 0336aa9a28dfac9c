"""A screenshot with marks: what can be acted on, by the ids of the observation; sent as a picture and never stored."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from envs.webarena.browser.set_of_marks import drawing
from envs.webarena.browser.tree import Element
from envs.webarena.env import WebEnv
from envs.webarena.options import BrowserOptions, identity, playing
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Message, Sampling
from lemur_ray.agents.openai_wire import request_body
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.instruct.solved import SolvedFilter, select
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from tests.envs.webarena.small_site import record
from tests.rollout.toy import toy_task

PICTURE = "data:image/png;base64,AAAA"
ELEMENTS = {
    "7": Element("link", "Ink", "link 'Ink'", (10, 20, 30, 8)),
    "8": Element("StaticText", "Ink", "StaticText 'Ink'", (10, 20, 30, 8)),
    "9": Element("button", "<b>", "button '<b>'", (60, 700, 40, 30)),
    "12345": Element("button", "Edge", "button 'Edge'", (1270, -2, 8, 8)),
    "10": Element("link", "Below", "link 'Below'", (10, 900, 30, 8)),
}


def test_what_can_be_acted_on_is_framed_and_labelled_within_the_picture() -> None:
    page = drawing(b"png", (1280, 720), ELEMENTS)
    assert all(f">{at}</text>" in page for at in ("7", "9", "12345"))
    assert ">8<" not in page, "a text is read and not clicked"
    assert ">10<" not in page, "it is out of the picture"
    assert '<rect x="10" y="20" width="30" height="8"' in page
    assert '<rect x="1241" y="0" width="39" height="14"' in page, "a label at an edge stays within"
    assert "<b>" not in page
    assert page.index(">9</text>") < page.index(">7</text>"), "small ones lie above large ones"


def test_a_picture_goes_beside_the_last_message_as_the_protocol_has_it() -> None:
    asked = ChatRequest((Message("system", "s"), Message("user", "seen")), picture=PICTURE)
    body = request_body("m", asked, EndpointOptions(), "max_tokens", None)
    assert body["messages"] == [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "seen"}, {"type": "image_url", "image_url": {"url": PICTURE}}],
        },
    ]
    with pytest.raises(EndpointRefused, match="chat models alone"):
        request_body("m", asked, EndpointOptions(api="completions"), "max_tokens", None)


class Seeing:
    name = "seeing"

    def __init__(self) -> None:
        self.pictures: list[str] = []

    def reply(self, request: ChatRequest) -> ChatReply:
        self.pictures.append(request.picture)
        return ChatReply("right")


def test_a_record_says_that_there_was_a_picture_and_is_not_exported_without_it() -> None:
    policy, task = Seeing(), toy_task(length=2, reset_info={"picture": PICTURE})
    key = EpisodeKey("toy", task.id, policy.name, "r")
    attempt = run_episode(EpisodeSpec(key, task, Sampling()), policy, clock=lambda: 0.0)
    assert policy.pictures == [PICTURE, ""], "of an observation that came without one none is shown"
    record = Episode(key, "line", attempt.outcome, attempt.score, 1, attempt.trajectory).to_json()
    episode = Episode.from_json(record)
    assert [step.pictured for step in episode.trajectory.steps] == [True, False]
    assert PICTURE not in str(record)
    assert episode.outcome is Outcome.SOLVED
    assert select([episode], SolvedFilter()).dropped == {"saw_pictures": 1}


def test_marks_are_off_unless_asked_for_and_then_another_evaluation() -> None:
    plain, marked = BrowserOptions(), BrowserOptions(marks=True)
    assert "marks" not in identity(plain, EvaluationRequest())
    assert identity(marked, EvaluationRequest())["marks"] is True
    assert playing(plain, EvaluationRequest())["marks"] is False


def test_a_page_is_shown_with_its_marks_and_knows_nothing_of_them(env: WebEnv) -> None:
    more: dict[str, Any] = {"wait_s": 0.1, "settles_s": 0.1}
    plain, info = env.reset(options={"record": record(), **more})
    assert "picture" not in info
    shown, info = env.reset(options={"record": record(), "marks": True, **more})
    assert shown.count("\n") == plain.count("\n"), "the same observation"
    assert "label" in info["system"]
    picture = base64.b64decode(info["picture"].removeprefix("data:image/png;base64,"))
    assert struct.unpack(">II", picture[16:24]) == (1280, 720)
    bare = env._running()._screenshot()
    assert len(picture) > len(bare), "frames and labels were drawn"
    observation, _, _, _, info = env.step("```scroll [down]```")
    assert info["picture"]
    assert "Tab 0 (current): Shop\n" in observation, "no other tab is seen"
