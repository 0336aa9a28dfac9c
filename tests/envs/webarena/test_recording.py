"""Published renders of runs: read as they were written, replayed on elements of the same words, or refused by name."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.actions.languages import read_reply
from envs.webarena.benchmark import BENCHMARKS, WebOptions
from envs.webarena.browser.tree import Element
from envs.webarena.recording import _named_element, current_id, read_recording
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.trajectory import EpisodeKey, Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from tests.envs.webarena.small_site import SmallSite, record

SHOP = "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop'\n\t[4] link 'Add'\n\t[5] link 'Add ink'\n\t[6] link 'Add'"
SAID = "Let's see: 1 < 2, so <b>add</b> it. In summary, the next action I will perform is ```{}```"
Page = tuple[str, str, str]
"""Observation, what was said, what was made of it."""


def rendered(task: int, pages: Sequence[Page], picture: str = "") -> str:
    """As upstream's helper writes a file: nothing is escaped, a block is closed by an opening tag."""
    body = f"<pre>sites: ['shopping']\ntask_id: {task}\nintent: How much is the ink?\neval: {{}}\n</pre>\n"
    for seen, said, understood in pages:
        body += "<h2>New Page</h2>\n<h3 class='url'><a href=http://x>URL: http://x</a></h3>\n"
        body += f"<div class='state_obv'><pre>{seen}</pre><div>\n{picture}"
        body += "<div class='prev_action' style='background-color:pink'>None</div>\n<div class='predict_action'>"
        for name, text in (("raw_parsed_prediction", said), ("action_object", "{...}"), ("parsed_action", understood)):
            body += f"<div class='{name}' style='background-color:grey'><pre>{text}</pre></div>"
        body += "</div>\n"
    return f"\n<!DOCTYPE html>\n<head>\n</head>\n<html>\n    <body>\n     {body}\n    </body>\n</html>\n"


def packed(file: Path, log: str, **files: str) -> Path:
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("run/merge_log.txt", log)
        for name, text in files.items():
            made.writestr(f"run/{name}.html", text)
    return file


SOLVED: list[Page] = [
    (SHOP, SAID.format("click [5]"), "click [5]"),
    ("Tab 0 (current): Basket\n\n[9] StaticText '</pre> <div>'", "", "stop [Early stop: Reach max steps 30]"),
]
LOG = "2023-08-01 [Result] (PASS) /tmp/a1/7.json\n2023-08-01 [Result] (FAIL) /tmp/a1/8.json\n"


def test_what_was_seen_said_and_reached_is_read_back(tmp_path: Path) -> None:
    pages = [*SOLVED, (SHOP, SAID.format("stop [N/A]"), "stop [N/A]")]
    picture = "<img src='data:image/png;base64,AAAA' style='width:50vw; height:auto;'/>\n"
    files = {"render_7": rendered(7, pages, picture), "render_8": rendered(8, [])}
    recording = read_recording(packed(tmp_path / "gpt.zip", LOG, **files))
    episode = recording.of("webarena/webarena|7|replay:x|r|0")
    assert [turn.reply for turn in episode.turns] == [
        pages[0][1],
        "```stop [Early stop: Reach max steps 30]```",
        pages[2][1],
    ]
    assert episode.seen == tuple(seen for seen, _, _ in pages)
    assert [turn.observation for turn in episode.turns] == [pages[1][0], SHOP, None]
    assert (episode.question, episode.solved) == ("How much is the ink?", True)
    assert episode.named() == [("link 'Add ink'", 0, 0), None, None]
    assert (recording.episodes["8"].turns, recording.episodes["8"].solved) == ((), False)


def test_an_action_is_on_the_element_of_the_same_words_in_the_same_place() -> None:
    words = ["link 'Add'", "link 'Add ink' focused: True", "link 'Add'"]
    now = {
        str(at): Element("link", text.split("'")[1], text, (0.0, 0.0, 1.0, 1.0)) for at, text in enumerate(words, 70)
    }
    assert current_id(("link 'Add'", 1, 1), now) == "72"
    assert current_id(("link 'Add'", 5, 5), now) == "72", "there were more of them"
    assert current_id(("link 'Add ink'", 0, 0), now) == "71", "it has the focus now"
    assert current_id(("link 'Gone'", 0, 0), now) == current_id(None, now) == "0"


def test_where_properties_differ_an_element_is_that_of_its_place_among_those_of_its_name() -> None:
    seen = "\t[4] textbox '' required: False\n\t[5] textbox '' focused: True required: False"
    named = _named_element("```type [5] [x]```", seen)
    assert named == ("textbox '' focused: True required: False", 0, 1)
    texts = ["textbox '' required: False", "textbox '' required: True"]
    now = {str(at): Element("textbox", "", text, (0.0, 0.0, 1.0, 1.0)) for at, text in enumerate(texts, 70)}
    assert current_id(named, now) == "71", "the second, although it has not the focus yet"
    assert _named_element("```click [7]```", """[7] link "it's \\" here" url: x""") == (
        """link "it's \\" here" url: x""",
        0,
        0,
    )


@pytest.mark.parametrize(
    ("log", "files", "said"),
    [
        (LOG, {}, "no render_"),
        ("", {"render_7": rendered(7, SOLVED)}, "no result of task 7"),
        (LOG, {"render_7": rendered(8, SOLVED)}, "render_7.html: expected the task 7"),
        (LOG, {"render_7": rendered(7, SOLVED).replace("state_obv", "state")}, "page 1 lacks"),
        (LOG, {"render_7": "<html>"}, "expected the task 7"),
    ],
)
def test_what_is_no_recording_is_refused_with_its_name(
    tmp_path: Path, log: str, files: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=rf"bad\.zip.*{said}"):
        read_recording(packed(tmp_path / "bad.zip", log, **files))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "render_7.html").write_text(rendered(7, SOLVED))
    with pytest.raises(ValueError, match=r"render_7\.html: no zip file: .*expected render_"):
        read_recording(tmp_path / "render_7.html")
    with pytest.raises(FileNotFoundError, match="no such recording"):
        read_recording(tmp_path / "none.zip")


def test_a_recording_is_replayed_in_another_browser(
    browser: None, site: SmallSite, tmp_path: Path, lemur_home: Path
) -> None:
    pages = [
        (SHOP, SAID.format("click [5]"), "click [5]"),
        ("Tab 0 (current): Basket", SAID.format("stop []"), "stop []"),
    ]
    file = packed(tmp_path / "gpt.zip", LOG, render_7=rendered(7, pages))
    contents: dict[str, Any] = {"url": "last", "locator": "document.querySelector('#basket').innerText"}
    page = {**contents, "required_contents": {"must_include": ["ink"]}}
    asks = {"eval_types": ["program_html"], "program_html": [page]}
    (tmp_path / "tasks.json").write_text(json.dumps([record(6), record(7, **asks)]))
    (tmp_path / "sites.json").write_text(json.dumps({"sets": [{"urls": {"SHOPPING": site.url}}]}))
    options = WebOptions(
        task_file=str(tmp_path / "tasks.json"), sites_file=str(tmp_path / "sites.json"), wait_s=0.1, order="any"
    )
    benchmark = BENCHMARKS["webarena"]
    (task,) = benchmark.load(options, EvaluationRequest(recording=file))
    policy = PolicySpec.parse(f"replay:{file}", recordings=benchmark.details.recording_format)
    key = EpisodeKey(task.benchmark, task.id, policy.label, "r")
    attempt = run_episode(EpisodeSpec(key, task), policy(), clock=lambda: 0.0)
    assert attempt.outcome is Outcome.SOLVED, attempt.detail
    assert (attempt.trajectory.steps[0].action or "") != "click [5]", "its id is another one here"


def test_what_was_acted_on_is_named_by_the_block_that_acted() -> None:
    seen = "\t[4] link 'A'\n\t[5] link 'B'"
    reply = "I try ```click [4]``` or rather ```click [5]```"
    assert read_reply(reply, "symbolic").action.element_id == "4"
    assert (
        _named_element(reply, seen)
        == _named_element("```click [4]```", seen)
        != _named_element("```click [5]```", seen)
    )
    assert _named_element("a fence that nobody closed ```click [4]", seen) is None
