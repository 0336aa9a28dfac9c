"""Records and their placeholders, orders of tasks, and prompts that differ in nothing but the written actions."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.actions.action import Action, Kind
from envs.webarena.actions.languages import Reading, read_reply, render
from envs.webarena.options import task_of
from envs.webarena.ordering import chains, in_order, read_order, spread
from envs.webarena.prompts.wording import build, previous_action, read_prompt
from envs.webarena.tasks import filled, logged_in, read_records, start_urls

RECORD: dict[str, Any] = {
    "task_id": 3,
    "sites": ["shopping", "reddit"],
    "start_url": "__SHOPPING__/a |AND| __SHOPPING_ADMIN__",
    "storage_state": "./.auth/gitlab.reddit_state.json",
    "intent": "Buy __REDDIT__",
    "eval": {"eval_types": ["url_match"], "reference_url": "__SHOPPING__/b", "program_html": []},
}


def test_placeholders_are_replaced_wherever_they_stand() -> None:
    found = filled(RECORD, {"SHOPPING": "http://s:1/", "SHOPPING_ADMIN": "http://s:2/admin", "REDDIT": "http://r"})
    assert start_urls(found) == ["http://s:1/a", "http://s:2/admin"]
    assert found["eval"]["reference_url"] == "http://s:1/b"
    assert found["intent"] == "Buy http://r"
    with pytest.raises(ValueError, match="SHOPPING_ADMIN, whose address"):
        filled(RECORD, {"SHOPPING": "http://s:1"})


def test_who_is_logged_in_stands_in_the_name_of_the_state() -> None:
    assert logged_in(RECORD) == ("gitlab", "reddit")
    assert logged_in({**RECORD, "storage_state": None}) == ()


def test_tasks_of_one_template_are_a_cluster(data_dir: Path) -> None:
    records = read_records(data_dir / "webarena/test.raw.json.gz")
    clusters = [task_of(record, "webarena/webarena", "nowhere", {}).cluster for record in records]
    assert (len(clusters), len(set(clusters))) == (812, 190)  # ids of 241 wordings
    same = [clusters[i] == clusters[j] for i in range(60) for j in range(i)]
    templates = [record["intent_template_id"] for record in records[:60]]
    assert same == [templates[i] == templates[j] for i in range(60) for j in range(i)]
    assert task_of(RECORD, "webarena/webarena", "nowhere", {}).cluster == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eval_types": ["sound_match"]}, "unknown evaluator 'sound_match'"),
        ({"program_html": [{"url": "func:os_remove('x')", "locator": ""}]}, "unknown helper"),
        ({"eval_types": ["string_match"], "reference_answers": None}, "without reference answers"),
    ],
)
def test_a_task_that_cannot_be_scored_is_refused_when_it_is_read(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    record = copy.deepcopy(RECORD)
    record["eval"].update(change)
    file = tmp_path / "tasks.json.gz"
    file.write_bytes(gzip.compress(json.dumps([record]).encode()))
    with pytest.raises(ValueError, match=said):
        read_records(file)


def test_tasks_come_after_those_they_wait_for_and_circles_are_named(tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"0": [2], "2": [3, 99]}')
    assert list(in_order([0, 1, 2, 3], read_order(file))) == [3, 2, 0, 1]
    with pytest.raises(ValueError, match="wait for each other"):
        list(in_order([0, 1], {0: [1], 1: [0]}))
    file.write_text("[1]")
    with pytest.raises(ValueError, match="--order"):
        read_order(file)


def test_chains_are_spread_over_no_more_copies_than_shorten_an_epoch() -> None:
    after = {1: [0], 2: [1, 99], 4: [3], 6: [5, 4]}
    assert chains(range(8), after) == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 1, 7: 2}
    two = spread(range(8), after, 4)
    assert (two.lanes, two.copy_of) == (2, {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 1})
    one = spread(range(812), {task: [task - 1] for task in range(1, 812)}, 3)
    assert (one.lanes, set(one.copy_of.values())) == (3, {0}), "one chain: three epochs side by side"
    assert spread([5], {}, 3).lanes == 3


@pytest.mark.parametrize("reasoning", [True, False])
def test_prompts_of_both_languages_are_equal_but_for_what_render_wrote(reasoning: bool) -> None:
    symbolic, python = (build(language, reasoning=reasoning, num_examples=3) for language in ("symbolic", "python"))  # type: ignore[arg-type]
    for (user, said), (python_user, python_said) in zip(symbolic.examples, python.examples, strict=True):
        assert user == python_user
        action = read_reply(said, "symbolic").action
        assert action == read_reply(python_said, "python").action
        assert said.replace(render(action, "symbolic"), "") == python_said.replace(render(action, "python"), "")
    one, other = symbolic.system.splitlines(), python.system.splitlines()
    assert len(one) == len(other)
    words = [tuple(line.partition(": ")[2] for line in lines if line.startswith("  ")) for lines in (one, other)]
    assert len(words[0]) == 12
    assert words[0][0] == words[1][0].removeprefix("int): ")


def test_slots_are_filled_once_whatever_is_in_them() -> None:
    shown = build("symbolic").shown("{url} {objective}", "{observation}", "{previous_action}", "x")
    assert (
        shown == "OBSERVATION:\n{url} {objective}\nURL: {observation}\nOBJECTIVE: {previous_action}\nPREVIOUS ACTION: x"
    )


def test_the_last_action_is_told_with_its_element_an_unknown_id_and_a_reply_without_one_apart() -> None:
    click = Reading(Action(Kind.CLICK, "12"))
    assert previous_action(click, "", "symbolic", {"12": "button 'Go'"}) == "click [12] where [12] is button 'Go'"
    assert previous_action(click, "", "python", {"12": "button 'Go'"}) == "click(id=12) where [12] is button 'Go'"
    assert "no element [12]" in previous_action(click, "", "python", {})
    assert previous_action(Reading(Action(Kind.PAGE_FOCUS, page_number=1)), "", "symbolic", {}) == "page_focus [1]"
    away = Reading(Action(Kind.GOTO_URL, url="http://x"))
    told = previous_action(away, "", "python", {}, "Page.goto: net::ERR_FAILED at http://x\n")
    assert told == "goto(url='http://x'), in vain: net::ERR_FAILED at http://x"
    assert previous_action(click, "", "symbolic", {"12": "button 'Go'"}, "gone").endswith("button 'Go', in vain: gone")
    assert '"what?"' in previous_action(read_reply("what?", "symbolic"), "what?", "symbolic", {})


def test_upstreams_prompt_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"intro": "I", "examples": [["u", "a"]], "template": "{url}|{observation}"}))
    prompt = read_prompt(file)
    assert (prompt.system, prompt.examples, prompt.shown("o", "u", "", "")) == ("I", (("u", "a"),), "u|o")
    file.write_text("{}")
    with pytest.raises(ValueError, match="no prompt of WebArena's"):
        read_prompt(file)
