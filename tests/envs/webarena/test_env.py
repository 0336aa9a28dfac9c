"""Episodes in a real browser: what is seen, done, scored, and what misbehaving pages come to."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Error as PlaywrightError

from envs.webarena.browser import play
from envs.webarena.browser.host import BrowserLost, shared_host
from envs.webarena.browser.session import Session
from envs.webarena.env import WebEnv
from envs.webarena.site_set import SitesLost
from tests.envs.webarena.small_site import SmallSite, SmallSites, record

QUICK: dict[str, Any] = {"wait_s": 0.2, "settles_s": 0.2}


def began(env: WebEnv, start: str = "/", language: str = "symbolic", **more: Any) -> str:
    rubric = more.pop("rubric", {})
    observation, _ = env.reset(options={"record": record(start=start, **rubric), "language": language, **QUICK, **more})
    return observation


def id_of(observation: str, what: str) -> str:
    """The id of the element whose line holds this text."""
    found = re.search(rf"\[(\d+)\] [^\n]*{re.escape(what)}", observation)
    assert found, f"no {what!r} in {observation}"
    return found[1]


def did(env: WebEnv, action: str) -> tuple[str, float, bool, dict[str, Any]]:
    observation, reward, terminated, _, info = env.step(f"```{action}```")
    return observation, reward, terminated, info


def test_an_episode_is_shown_acted_in_and_scored_once_where_it_ends(env: WebEnv, sites: SmallSites) -> None:
    contents = {"url": "last", "locator": "document.querySelector('#basket').innerText"}
    page = {**contents, "required_contents": {"must_include": ["ink"]}}
    rubric = {
        "eval_types": ["url_match", "program_html"],
        "reference_url": "__SHOPPING__/basket",
        "program_html": [page],
    }
    shown = began(env, rubric=rubric)
    assert shown.startswith("OBSERVATION:\nTab 0 (current): Shop\n\n[")
    assert "URL: http://onestopmarket.com/" in shown
    assert shown.endswith("OBJECTIVE: How much is the ink?\nPREVIOUS ACTION: None")
    link = id_of(shown, "Add ink")
    shown, reward, ended, info = did(env, f"click [{link}]")
    assert "StaticText 'ink'" in shown
    assert f"PREVIOUS ACTION: click [{link}] where [{link}] is link 'Add ink'" in shown
    assert (reward, ended, info["valid"]) == (0, False, True)
    _, reward, ended, info = did(env, "stop []")
    assert (reward, ended, info["outcome"]) == (1, True, "solved")
    counts = json.loads(info["note"].removeprefix("webarena: "))
    assert (counts["steps"], counts["parse_failures"], counts["verdict"]) == (2, 0, True)
    env.close()
    assert (sites.leased, sites.released) == (1, 1)


def test_both_languages_see_the_same_and_the_prompt_comes_before_the_observation(env: WebEnv) -> None:
    infos = {}
    for language in ("symbolic", "python"):
        observation, infos[language] = env.reset(options={"record": record(), "language": language, **QUICK})
        assert "[" in observation
    assert infos["symbolic"]["dialogue_limit"] == 0
    before = [info["ask"]["before"] for info in infos.values()]
    assert [m["content"] for m in before[0] if m["role"] == "user"] == [
        m["content"] for m in before[1] if m["role"] == "user"
    ]
    _, reward, ended, _ = did(env, "stop(answer='$7.25')")
    assert (reward, ended) == (1, True)


def test_what_ends_an_episode_early_is_scored_as_its_answer(env: WebEnv) -> None:
    began(env)
    for _ in range(2):
        assert not did(env, "dance [1]")[2]
    said, reward, ended, info = did(env, "dance [1]")
    assert (said, reward, ended) == ("Early stop: Failed to parse actions for 3 times", 0, True)
    assert info["outcome"] == "invalid_actions"
    assert '"early_stop": "parsing_failure"' in info["note"]


def test_tabs_are_opened_listed_focused_and_closed(env: WebEnv) -> None:
    shown = began(env, start="/ /basket")
    assert "Tab 0 (current): Shop | Tab 1: Basket" in shown
    assert "Tab 1 (current): Basket" in did(env, "tab_focus [1]")[0]
    shown = did(env, "new_tab")[0]
    assert "Tab 2 (current)" in shown
    assert "PREVIOUS ACTION: new_tab" in shown
    assert did(env, "tab_focus [7]")[3]["valid"] is False
    for _ in range(2):
        did(env, "close_tab")
    assert "Tab 0 (current): Shop" in did(env, "scroll [down]")[0]


def test_what_happened_is_noted_at_every_turn_with_what_only_python_calls_can_say(env: WebEnv) -> None:
    shown = began(env, start="/form", language="python")
    field = id_of(shown, "textbox 'Field'")
    info = did(env, f"type(id={field}, content='two\\nlines')")[3]
    counts = json.loads(info["note"].removeprefix("webarena: "))
    assert (counts["steps"], counts["beyond_symbolic"], counts["verdict"]) == (1, 1, True)
    shown, _, ended, info = did(env, "stop(answer='ERROR: no way')")
    assert ended
    assert '"beyond_symbolic": 1' in info["note"]


def test_what_may_be_acted_on_at_random_or_by_an_expert_is_what_the_model_is_shown(env: WebEnv) -> None:
    shown = began(env, observation_tokens=55, hints=True)
    assert "link 'Add pen'" in shown
    assert "'Add paper'" not in shown, "it is cut"
    assert id_of(shown, "Add pen") in env.shown_elements
    assert {one.name for one in env.elements.values()} > {one.name for one in env.shown_elements.values()}
    assert "Add paper" not in {one.name for one in env.shown_elements.values()}
    acted_on = re.findall(r"(?:click|type) \[(\d+)\]", str(env.hints()["admissible"]))
    assert acted_on
    assert set(acted_on) <= set(env.shown_elements)


def test_popups_are_listed_can_be_focused_and_are_bounded(env: WebEnv) -> None:
    shown = began(env, start="/popups", wait_s=1.0)
    shown = did(env, f"click [{id_of(shown, 'More')}]")[0]
    for _ in range(20):  # on a busy machine the first of them may come late
        shown = shown if "Tab 1: " in shown else did(env, "scroll [down]")[0]
    assert "Tab 0 (current): popups | Tab 1: " in shown
    assert "Tab 12" not in shown
    shown, _, _, info = did(env, "tab_focus [1]")
    assert info["valid"]
    assert "Tab 1 (current): Shop" in shown


def test_nothing_outside_the_site_set_is_ever_asked(env: WebEnv, other_site: SmallSite) -> None:
    shown = began(env, start="/outside")
    before = len(other_site.asked)
    did(env, f"click [{id_of(shown, 'Away')}]")
    for url in (f"{other_site.url}/x", "file:///etc/passwd", "chrome://version", "javascript:alert(1)"):
        shown, _, _, info = did(env, f"goto [{url}]")
        assert not info["valid"]
        assert "root:" not in shown
        assert re.search(r"PREVIOUS ACTION: goto \[\S+\], in vain: ", shown), "it is told why"
    did(env, f"goto [{env._lease.urls['SHOPPING']}/away]")  # type: ignore[union-attr]
    assert len(other_site.asked) == before == 0
    assert did(env, "goto [http://onestopmarket.com/basket]")[3]["valid"]


@pytest.mark.parametrize(
    "text",
    ["日本語😀", "a\tb\x07c\u202e", pytest.param("é" * 100_000, marks=pytest.mark.slow)],
    ids=["cjk", "control", "100 kB"],
)
def test_any_text_can_be_typed(env: WebEnv, text: str) -> None:
    shown = began(env, start="/form", language="python", evaluator="strict")
    field = id_of(shown, "textbox 'Field'")
    observation, _, _, info = did(env, f"type(id={field}, content={text!r}, press_enter_after=False)")
    assert info["valid"]
    length = int(re.search(r"Tab 0 \(current\): (\d+)", observation)[1])  # type: ignore[index]
    assert length >= len(text) - 2  # control characters are no text of a field


@pytest.mark.slow
def test_a_dialog_for_ever_a_download_and_an_error_page_end_nothing(env: WebEnv) -> None:
    began(env, start="/alerts")
    assert did(env, "goto [http://onestopmarket.com/error]")[3]["valid"]
    shown = did(env, "goto [http://onestopmarket.com/download]")[0]
    shown = did(env, f"click [{id_of(shown, 'File')}]")[0]
    assert "Tab 0 (current)" in shown
    assert did(env, "goto [http://onestopmarket.com/]")[3]["valid"]
    assert did(env, "stop [$7.25]")[1] == 1


def test_an_element_that_is_gone_and_one_that_never_was_are_told_apart(env: WebEnv) -> None:
    shown = began(env, start="/vanishing")
    button = id_of(shown, "Gone")
    did(env, f"click [{button}]")
    shown, _, _, info = did(env, f"hover [{button}]")
    assert not info["valid"]
    assert f"no element [{button}]" in shown


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier has it twice in test_hostile_pages
def test_a_page_of_200_000_elements_is_not_read_and_can_be_left(env: WebEnv) -> None:
    shown = began(env, start="/many", wait_s=1.0)
    assert "200,0" in shown
    assert "at most" in shown
    assert "link 'Add ink'" in did(env, "goto [http://onestopmarket.com/]")[0]


def test_a_site_that_is_gone_is_nobodys_fault(env: WebEnv, sites: SmallSites) -> None:
    began(env)
    sites.site.close()
    sites.alive = False
    with pytest.raises(SitesLost, match="gone"):
        did(env, "goto [http://onestopmarket.com/basket]")


def test_every_episode_begins_with_nobody_logged_in_and_leaves_nothing_open(env: WebEnv, site: SmallSite) -> None:
    for _ in range(3):
        shown = began(env)
        did(env, f"click [{id_of(shown, 'Add pen')}]")
    env.close()
    host = shared_host()

    async def contexts() -> int:
        return len((await host.browser()).contexts)

    assert host.run(contexts(), 60, "counting") == 0


def test_a_har_the_trees_and_screenshots_are_kept_where_they_are_asked_for(env: WebEnv, tmp_path: Path) -> None:
    began(env, artefacts=str(tmp_path), screenshots=True)
    info = did(env, "stop [x]")[3]
    env.close()
    (folder,) = tmp_path.iterdir()
    assert str(folder) in info["note"]
    assert (folder / "00.png").stat().st_size > 1000
    assert json.loads((folder / "trees.jsonl").read_text().splitlines()[0])["elements"]
    assert json.loads((folder / "network.har").read_text())["log"]["entries"]


@pytest.mark.slow
def test_a_page_that_never_comes_to_rest_is_told_and_can_be_left(env: WebEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "SEE_S", 12.0)
    shown = began(env, start="/busy", wait_s=1.0)
    assert "does not answer" in shown
    did(env, "new_tab")
    assert "link 'Add ink'" in did(env, "goto [http://onestopmarket.com/]")[0]


def test_a_browser_that_dies_while_an_episode_begins_is_nobodys_fault(
    env: WebEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(session: Session, urls: Sequence[str]) -> None:
        await session.context.close()  # the browser still says that it is connected
        raise PlaywrightError("Target page, context or browser has been closed")

    monkeypatch.setattr(Session, "start", dies)
    with pytest.raises(BrowserLost, match="no tab stayed open"):
        began(env)


@pytest.mark.sweep
def test_a_browser_that_stands_still_is_ended_by_its_process_id_and_started_anew(env: WebEnv) -> None:
    began(env)
    host = shared_host()
    pid, launches = host.pid(), host.launches
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(BrowserLost):
        did(env, "scroll [down]")
    env.close()
    assert not Path(f"/proc/{pid}/exe").exists()
    assert "link 'Add ink'" in began(env)
    assert host.launches == launches + 1
