"""What a task is scored by is looked at when it is read: each fault is a line with the task and what is expected."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.evaluators.rubric import check_rubric
from envs.webarena.tasks import filled, read_records
from tests.envs.webarena.small_site import record

TARGET: dict[str, Any] = {
    "url": "func:reddit_get_post_url('__last_url__')",
    "locator": "document.title",
    "required_contents": {"must_include": ["x"]},
}


def on_page(**change: Any) -> dict[str, Any]:
    return {"eval_types": ["program_html"], "program_html": [{**TARGET, **change}]}


def answered(**answers: Any) -> dict[str, Any]:
    return {"eval_types": ["string_match"], "reference_answers": answers}


def at(url: str, **more: Any) -> dict[str, Any]:
    return {"eval_types": ["url_match"], "reference_url": url, **more}


@pytest.mark.parametrize(
    ("rubric", "said"),
    [
        ({"eval_types": []}, "eval_types is empty"),
        ({**at("__SHOPPING__"), "reference_urls": "x"}, "unknown key 'reference_urls' in eval: did you mean"),
        (answered(), "string_match without reference answers"),
        (answered(must_inclde=["x"]), "unknown rule 'must_inclde' .* did you mean 'must_include'"),
        (answered(exact_match=["x"]), "exact_match: a list, expected a text"),
        (answered(must_include="x"), "must_include: 'x', expected a list of texts"),
        (answered(must_include=[]), r"must_include: \[\], expected a list of texts"),
        (answered(fuzzy_match="yes"), "fuzzy_match: 'yes', expected 'N/A' or a list"),
        (at(""), "url_match without an address"),
        (at("__SHOPPING__", url_note="EXACT"), "url_note 'EXACT'"),
        ({"eval_types": ["program_html"], "program_html": []}, "program_html without targets"),
        (on_page(url="lst"), "url of program_html: 'lst', expected an address, last or func:"),
        (on_page(url="func:reddit_get_post_url()"), "helper .*: expected 1 text"),
        (on_page(url="func:reddit_get_post_url(url)"), "unknown helper"),
        (on_page(locator="func:shopping_get_latest_order('x')"), "unknown helper"),
        (on_page(locator="page.title"), "unknown locator 'page.title'"),
        (on_page(required_contents={"must_exclude": ["x"]}), "unknown required contents .*must_exclude"),
        (on_page(required_contents={"must_include": "x"}), "must_include: 'x', expected a list"),
        (on_page(locater=""), "unknown key 'locater' in program_html: did you mean .*locator"),
        (on_page(prep_actions="document.x"), "prep_actions: 'document.x', expected a list"),
    ],
)
def test_a_rubric_that_cannot_be_meant_is_refused_before_anything_is_played(
    tmp_path: Path, rubric: dict[str, Any], said: str
) -> None:
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps([record(1), record(2, **rubric)]))
    with pytest.raises(ValueError, match=rf"tasks\.json: task 2: .*{said}"):
        read_records(file)


def test_what_upstream_has_is_taken() -> None:
    check_rubric({"eval": on_page(locator="func:gitlab_get_project_memeber_role(__page__, 'a')", prep_actions=["x"])})
    check_rubric({"eval": answered(must_include=["a"], fuzzy_match="N/A") | {"string_note": "", "annotation_note": ""}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start_url": "__REDIT__/f"}, "unknown site REDIT: expected some of SHOPPING"),
        ({"sites": ["shoping"]}, "unknown site SHOPING"),
        ({"start_url": "shop.test:80"}, "start_url 'shop.test:80': expected an address"),
        ({"storage_state": "./.auth/wikipedia_state.json"}, "storage_state names 'wikipedia'"),
    ],
)
def test_sites_that_nobody_has_are_refused_when_a_task_is_read(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps([{**record(3), **change}]))
    with pytest.raises(ValueError, match=rf"task 3: {said}"):
        read_records(file)


def test_no_episode_begins_with_a_placeholder_in_what_it_is_scored_by() -> None:
    task = copy.deepcopy(record(4, **on_page(url="__REDDIT__/f/cats", locator="")))
    with pytest.raises(ValueError, match="task 4 has to do with REDDIT, whose address is not configured"):
        filled(task, {"SHOPPING": "http://s"})
    assert filled(task, {"SHOPPING": "http://s", "REDDIT": "http://r"})["eval"]["program_html"][0]["url"] == (
        "http://r/f/cats"
    )
