"""Screenshots for models that take images, plain or with marks: sent as pictures, stored in files of their digests."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.browser.set_of_marks import drawing
from envs.webarena.browser.tree import Element
from envs.webarena.env import WebEnv
from envs.webarena.options import BrowserOptions, identity, playing
from envs.webarena.run_notes import PROTOCOL
from envs.webarena.views import views
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Message, Policy, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.openai_wire import request_body
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.instruct.solved import SolvedFilter, select
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.rollout.stored_replies import stored_policy
from tests.agents.misbehaving import completion, serving
from tests.envs.webarena.small_site import record
from tests.envs.webarena.test_views import reported
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
    assert [step.picture for step in episode.trajectory.steps] == [hashlib.sha256(bytes(3)).hexdigest()[:16], ""]
    assert PICTURE not in str(record)
    assert episode.outcome is Outcome.SOLVED
    assert select([episode], SolvedFilter()).dropped == {"saw_pictures": 1}


@pytest.mark.parametrize("option", ["marks", "image"])
def test_pictures_are_off_unless_asked_for_and_then_another_evaluation(option: str) -> None:
    without, pictured = BrowserOptions(), BrowserOptions(**{option: True})
    assert option not in identity(without, EvaluationRequest())
    assert identity(pictured, EvaluationRequest())[option] is True
    assert playing(without, EvaluationRequest())[option] is False
    settings = {**PROTOCOL.settings, "judge": "m", option: True}
    assert any("screenshots" in words for words in PROTOCOL.departures(EvaluationRun("p", settings)))


def test_one_picture_is_shown_with_marks_or_without() -> None:
    with pytest.raises(ValueError, match="--marks --image: expected one of them"):
        BrowserOptions(marks=True, image=True)


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


def test_a_page_whose_marks_cannot_be_drawn_is_not_shown_but_its_screenshot_is_stored(
    env: WebEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"marks": True, "artefacts": str(tmp_path), "screenshots": True, "wait_s": 0.1, "settles_s": 0.1}
    env.reset(options={"record": record(), **more})
    play = env._running()
    monkeypatch.setattr(play, "_with_marks", lambda picture: b"")
    play.look()
    assert (play.picture, play.without_picture) == ("", 1)
    assert len(list(tmp_path.rglob("*.png"))) == 2


def test_a_model_is_sent_the_page_as_the_browser_shows_it_and_the_page_of_the_run_has_that_picture(
    env: WebEnv, tmp_path: Path
) -> None:
    """Played twice: by an endpoint that takes images, and again by the replies that it gave."""
    replies = ["```scroll [down]```", "```stop [$7.25]```"]
    key = EpisodeKey("webarena/webarena", "7", "p", "r")

    def played(policy: Policy, folder: Path) -> tuple[Episode, list[bytes]]:
        more = {"image": True, "artefacts": str(folder), "wait_s": 0.1, "settles_s": 0.1, "judge": "none"}
        task = Task("webarena/webarena", "7", "WebArena-v0", "shopping", {"record": record(), **more})
        attempt = run_episode(EpisodeSpec(key, task, Sampling()), policy, clock=time.monotonic, make_env=lambda _: env)
        assert attempt.outcome.scored, attempt.detail
        episode = Episode(key, "shopping", attempt.outcome, attempt.score, 1, attempt.trajectory, note=attempt.note)
        return episode, [one.picture.read_bytes() for one in views(episode) if one.picture]

    with (
        serving(lambda asked: completion(replies[len(server.asked) - 1])) as server,
        contextlib.closing(OpenAIPolicy(server.url, "toy", patience_s=60.0)) as policy,
    ):
        first, stored = played(policy, tmp_path / "first")
    parts = [asked["messages"][-1]["content"] for asked in server.asked]
    assert [[part["type"] for part in both] for both in parts] == [["text", "image_url"]] * 2
    sent = [base64.b64decode(picture["image_url"]["url"].partition(",")[2]) for _, picture in parts]
    assert sent == stored[: len(sent)], "the files are the pictures that were sent"
    assert struct.unpack(">II", sent[0][16:24]) == (1280, 720)
    assert [step.picture for step in first.trajectory.steps] == [hashlib.sha256(one).hexdigest()[:16] for one in sent]
    assert "A screenshot of the page comes with them.\n" in server.asked[0]["messages"][0]["content"]
    page = reported(tmp_path / "run", first)
    assert page.count("<img loading") == len(stored) == 2
    assert f"before the first turn; the model was sent the picture {first.trajectory.steps[0].picture}" in page
    spec = stored_policy(f"ledger:{tmp_path / 'run'}", "", "webarena/webarena")
    assert spec
    again, stored = played(spec(), tmp_path / "again")
    assert [step.reply for step in again.trajectory.steps] == replies
    assert [step.picture for step in again.trajectory.steps] == [hashlib.sha256(x).hexdigest()[:16] for x in stored]
