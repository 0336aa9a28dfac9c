"""The list of all episodes, what scripts make of pages and how they look, in a browser that opens them as files."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import alfworld, episode, write_ledger

from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory
from lemur_ray.report.ledgers.stored_episodes import anchor_of, stored_episodes
from lemur_ray.report.pages import transcript_pages
from lemur_ray.report.pages.transcripts import transcript
from lemur_ray.report.pages.whole_page import render_report, render_run
from tests.serve.browser import Browser, chromium, found

TABLE_3 = ("mmlu", "bbh/direct", "gsm8k", "humaneval", "mbpp", "spider", "multipl_e/cpp", "ds1000")
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def listed(folder: Path) -> Any:
    text = (folder / "episodes.html").read_text(encoding="utf-8")
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def two_runs(home: Path) -> Path:
    """Three tasks: both solve the first, the model alone the second, nobody the third."""
    ends = {"a": (True, True), "b": (True, False), "c": (False, False)}
    for place, policy in enumerate(("nano-chat", "expert")):
        played = []
        for task, solved in ends.items():
            one = episode(task, Outcome.SOLVED if solved[place] else Outcome.FAILED, policy=policy, turns=3)
            steps = one.trajectory.steps
            said = "open drawer 1" if policy == "expert" else "close drawer 1"
            differs = (*steps[:1], replace(steps[1], reply=said, action=said), steps[2])
            played.append(replace(one, trajectory=replace(one.trajectory, steps=differs)))
        write_ledger(home / "episodes" / policy, played)
    folders = [home / "episodes" / policy for policy in ("nano-chat", "expert")]
    render_report(home / "report", runs=[], episodes=folders, corpus=None)
    return home / "report"


def test_an_address_follows_from_the_key_alone_and_leads_to_the_episode(tmp_path: Path) -> None:
    played = alfworld("nano-chat", 0.5, 3, per_kind=2)
    folders = [write_ledger(tmp_path / "x", played), write_ledger(tmp_path / "y", list(reversed(played)))]
    for folder in folders:
        render_run(folder)
    anchors = [{row[1]: row[-1] for row in listed(folder)["rows"]} for folder in folders]
    assert anchors[0] == anchors[1] == {e.key.task: anchor_of(e.key) for e in played}


def test_the_same_episode_in_two_ledgers_has_two_addresses(tmp_path: Path) -> None:
    folders = [write_ledger(tmp_path / name, [episode("a", Outcome.SOLVED)]) for name in "xy"]
    render_report(tmp_path / "out", runs=[], episodes=folders, corpus=None)
    data = listed(tmp_path / "out")
    assert len({row[-1] for row in data["rows"]}) == 2
    page = (tmp_path / "out" / data["pages"][0]).read_text(encoding="utf-8")
    assert all(f'id="{row[-1]}"' in page for row in data["rows"])


def test_all_runs_of_a_task_stand_on_one_page_however_many_pages_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_pages, "PAGE_BYTES", 30_000)
    policies = ("nano-chat", "expert", "random")
    folders = [write_ledger(tmp_path / p, alfworld(p, 0.5, 1, per_kind=2)) for p in policies]
    render_report(tmp_path / "out", runs=[], episodes=folders, corpus=None)
    data = listed(tmp_path / "out")
    assert len(data["pages"]) > 3
    assert all(len({row[10] for row in data["rows"] if row[1] == task}) == 1 for task in {r[1] for r in data["rows"]})


def test_pages_that_say_nothing_new_are_not_written_again_and_pages_of_before_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_pages, "PAGE_BYTES", 30_000)
    played = alfworld("nano-chat", 0.5, 1, per_kind=3)
    write_ledger(tmp_path, played[:15])
    render_run(tmp_path)
    pages = {path: path.stat().st_mtime_ns for path in (tmp_path / "transcripts").iterdir()}
    assert len(pages) > 3
    write_ledger(tmp_path, played)
    render_run(tmp_path)
    same = [path for path, written in pages.items() if path.stat().st_mtime_ns == written]
    assert len(same) >= len(pages) - 1
    (tmp_path / "transcripts" / "mine.html").write_text("kept")
    write_ledger(tmp_path, played[:2])
    monkeypatch.undo()
    render_run(tmp_path)
    assert [path.name for path in (tmp_path / "transcripts").iterdir()] == ["mine.html"]


def test_many_episodes_are_told_in_the_report_by_kind_and_shown_in_the_list(tmp_path: Path) -> None:
    kinds = ("easy", "hard & long")
    played = [episode(f"t{i}", Outcome.FAILED, turns=1, category=kinds[i % 2]) for i in range(1000)]
    write_ledger(tmp_path, played)
    render_run(tmp_path)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert len(index) < 100_000
    assert "episodes.html#benchmark=alfworld%2Ftext&amp;kind=hard+%26+long" in index
    assert len(listed(tmp_path)["rows"]) == 1000


def test_a_turn_says_what_it_took_and_the_answer_stands_beside_what_it_was_compared_with() -> None:
    steps = [Step("a", "a", "no", 0.0, True, 1.25, 0.5, 1100, 20), Step("b", "b", "yes", 1.0, True, 2.0, 0.25, 1300, 7)]
    one = replace(episode("a", Outcome.SOLVED), trajectory=Trajectory((), tuple(steps)), reference="b <it is>")
    shown = transcript(one, "x")
    wanted = [
        "1.25 s policy · 0.50 s environment · 1,100 tokens in, 20 out · reward 0", "reward 1", 'class="strip"',
        "2 turns: policy 3.2 s, environment 0.8 s, 2,400 tokens in, 27 out, reward 1",
        "reference, which the model never saw</span><pre>b &lt;it is&gt;</pre>",
    ]  # fmt: skip
    assert not [words for words in wanted if words not in shown]
    assert "reference" not in transcript(replace(one, reference=""), "x")


def test_references_and_clusters_survive_the_ledger_and_are_left_out_where_there_are_none() -> None:
    one = replace(episode("a", Outcome.SOLVED), reference="42", cluster="algebra")
    assert Episode.from_json(one.to_json()) == one
    assert not {"reference", "cluster"} & episode("a", Outcome.SOLVED).to_json().keys()


def test_numbers_without_texts_are_those_of_the_whole_episode(tmp_path: Path) -> None:
    played = alfworld("nano-chat", 0.5, 1, per_kind=2)
    write_ledger(tmp_path, played)
    for stored, whole in zip(stored_episodes(tmp_path / "episodes.jsonl"), played, strict=True):
        assert stored.load() == whole
        assert not stored.trajectory.opening
        assert [(s.valid, s.env_s, s.prompt_tokens, s.action is None) for s in stored.trajectory.steps] == [
            (s.valid, s.env_s, s.prompt_tokens, s.action is None) for s in whole.trajectory.steps
        ]


# In a browser

needs_chromium = pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def rows(page: Any) -> list[str]:
    return list(page.value("[...document.querySelectorAll('#rows tr')].map(r => r.cells[0].textContent)"))


@needs_chromium
def test_filter_sort_and_search_stay_in_the_address_of_a_file(tmp_path: Path, browser: Browser) -> None:
    url = (two_runs(tmp_path) / "episodes.html").as_uri()
    page = browser.page(url)
    assert page.text("#count") == "6 of 6 episodes, 3 of them solved"
    page.value("document.querySelector('#q').focus()")
    page.type("solved")
    page.value("[...document.querySelectorAll('.sort')].find(b => b.textContent === 'task').click(); 0")
    page.value("[...document.querySelectorAll('.sort')].find(b => b.textContent.startsWith('task')).click(); 0")
    assert rows(page) == ["b", "a", "a"]
    address = str(page.value("location.href"))
    assert "#q=solved&sort=-task" in address
    again = browser.page(address)
    assert rows(again) == ["b", "a", "a"]
    assert again.value("document.querySelector('#q').value") == "solved"
    assert not again.complaints()


@pytest.mark.slow
@needs_chromium
def test_tasks_against_runs_and_two_runs_side_by_side_with_the_first_difference(
    tmp_path: Path, browser: Browser
) -> None:
    url = (two_runs(tmp_path) / "episodes.html").as_uri()
    page = browser.page(f"{url}#view=matrix&a=0&b=1&only=a")
    assert rows(page) == ["b"]
    assert page.value("[...document.querySelectorAll('#rows a')].map(a => a.className)") == ["ok", "", ""]
    pair = browser.page(str(page.value("[...document.querySelectorAll('#rows a')].at(-1).href")))
    assert pair.text("#pair .lede") == "First difference: turn 2 (another reply)."
    marked = "[...document.querySelectorAll('.differs')].map(x => x.querySelector('.t').textContent)"
    assert pair.value(marked) == ["2", "2"]
    assert not pair.complaints()


@pytest.mark.slow
@needs_chromium
def test_a_link_that_stays_leads_on_to_the_transcript(tmp_path: Path, browser: Browser) -> None:
    folder = two_runs(tmp_path)
    anchor = listed(folder)["rows"][-1][-1]
    page = browser.page((folder / "episodes.html").as_uri())
    page.value(f"setTimeout(() => {{ location.hash = '{anchor}'; }}, 1); 0")
    deadline = time.monotonic() + 30
    arrived = False
    while not arrived and time.monotonic() < deadline:
        with contextlib.suppress(AssertionError):  # between two pages there is none to be asked
            arrived = page.value(f"Boolean(document.querySelector('details[open]#{anchor}'))")
    assert arrived
    assert "/transcripts/" in str(page.value("location.pathname"))


@pytest.mark.slow
@needs_chromium
def test_hostile_names_do_nothing_in_the_list_or_side_by_side(tmp_path: Path, browser: Browser) -> None:
    played = [
        episode(HOSTILE, Outcome.FAILED, category=HOSTILE, epoch=n, reply=f"{n}{HOSTILE}", observation=HOSTILE)
        for n in range(2)
    ]
    write_ledger(tmp_path, played)
    render_run(tmp_path)
    page = browser.page(f"{(tmp_path / 'episodes.html').as_uri()}#view=matrix")
    assert rows(page) == [HOSTILE]
    pair = browser.page(str(page.value("[...document.querySelectorAll('#rows a')].at(-1).href")))
    assert "turn 1" in pair.text("#pair .lede")
    assert [p.value("document.querySelectorAll('img').length") for p in (page, pair)] == [0, 0]
    assert "owned" not in (page.value("document.title"), pair.value("document.title"))


@needs_chromium
def test_how_an_episode_ended_is_told_by_a_sign_of_its_own_wherever_it_has_a_colour(
    tmp_path: Path, browser: Browser
) -> None:
    ends = {"a": Outcome.SOLVED, "b": Outcome.FAILED, "c": Outcome.INFRA_LOST}
    played = [episode(task, end) for task, end in ends.items()]
    played.append(replace(episode("d", Outcome.FAILED), score=0.5))
    write_ledger(tmp_path, played)
    render_run(tmp_path)
    shown = "[...document.querySelectorAll('{}')].map(x => [x.className, getComputedStyle(x, '::before').content])"
    signs = {"ok": '"✓"', "": '"\u00d7"', "miss": '"?"', "part": '"~"'}
    matrix = browser.page(f"{(tmp_path / 'episodes.html').as_uri()}#view=matrix")
    report = browser.page((tmp_path / "index.html").as_uri())
    for page in (matrix, report):
        assert dict(page.value(shown.format(".grid-of a"))) == signs
    keys = dict(report.value(shown.format(".key")))
    assert {name.removeprefix("key").strip(): sign for name, sign in keys.items()} == signs


@needs_chromium
@pytest.mark.parametrize(("width", "in_sight"), [(400, 2), (1200, 9)])
def test_a_table_of_the_paper_shows_numbers_beside_every_name(
    width: int, in_sight: int, tmp_path: Path, browser: Browser
) -> None:
    played = [
        episode(str(n), Outcome.SOLVED if n % 2 else Outcome.FAILED, benchmark=name, policy="a-model-with-a-long-name")
        for name in TABLE_3
        for n in range(60)
    ]
    folder = write_ledger(tmp_path / "run", played)
    render_report(tmp_path / "report", runs=[], episodes=[folder], corpus=None)
    page = browser.page((tmp_path / "report/index.html").as_uri(), width=width, phone=width < 600)
    table = "[...document.querySelectorAll('h3')].find(h => h.textContent.startsWith('Table 3')).nextElementSibling"
    ends = page.value(
        f"[...{table}.querySelectorAll('tbody tr:first-child td')].map(c => c.getBoundingClientRect().right)"
    )
    assert sum(end <= width for end in ends) >= 1 + in_sight
    page.value(f"{table}.scrollLeft = 10000; 0")
    assert page.value(f"{table}.querySelector('tbody td').getBoundingClientRect().left") >= 0
    assert page.value("document.documentElement.scrollWidth") <= width


@needs_chromium
def test_policies_with_long_names_are_compared_up_to_the_last_column_in_sight(tmp_path: Path, browser: Browser) -> None:
    names = [f"replies:a-file-of-replies-with-a-long-name-{n}.jsonl" for n in range(3)]
    folders = [
        write_ledger(
            tmp_path / str(place),
            [
                episode(str(n), Outcome.SOLVED if n > 9 * place else Outcome.FAILED, policy=name, recipe=f"r{place}")
                for n in range(30)
            ],
        )
        for place, name in enumerate(names)
    ]
    render_report(tmp_path / "report", runs=[], episodes=folders, corpus=None)
    page = browser.page((tmp_path / "report/index.html").as_uri(), width=1300)
    ends = page.value(
        "[...[...document.querySelectorAll('th')].find(h => h.textContent === 'on the same tasks').parentNode.cells]"
        ".map(c => c.getBoundingClientRect().right)"
    )
    assert len(ends) == 8
    assert max(ends) <= page.value("document.querySelector('main').getBoundingClientRect().right")
