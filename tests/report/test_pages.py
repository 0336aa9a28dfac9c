"""The pages: safe against hostile text, whole without the network, plain about what is missing."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import alfworld, episode, write_corpus, write_ledger, write_run

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.benchmarks.discovery import describe_run
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.report.escape import block, inline, printable, slug
from lemur_ray.report.inputs import ReportError, collect_inputs, discover, read_run
from lemur_ray.report.ledgers.stored_episodes import anchor_of, stored_episodes
from lemur_ray.report.pages import transcript_pages
from lemur_ray.report.pages.whole_page import render_report, render_run
from lemur_ray.report.paper import COLUMNS, FIGURE_5_GPT_4, MODELS, TABLE_4_MICRO, TABLE_6
from lemur_ray.report.paper_rows import REASONING
from lemur_ray.report.policy_results import baseline_of, display_name

VOID = {"meta", "br", "link", "img", "hr", "input"}
HOSTILE = "\x1b[2J\x07<script>alert(1)</script>\u202egnp.exe\x00\ud800\"'><img src=x onerror=alert(2)>\r\nend\u2028"


class Outline(HTMLParser):
    """Elements that are not closed, ids, links and whatever a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")
            if name in ("src", "srcset", "data") or name.startswith("on"):
                self.fetched.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def outline(path: Path) -> Outline:
    found = Outline()
    found.feed(path.read_text(encoding="utf-8"))
    assert not found.wrong, f"{path.name}: badly nested {found.wrong[:5]}"
    assert not found.open, f"{path.name}: never closed {found.open[:5]}"
    assert not found.fetched, f"{path.name}: fetches or runs {found.fetched[:3]}"
    assert len(found.ids) == len(set(found.ids)), f"{path.name}: an id occurs twice"
    return found


def whole_demo(home: Path) -> dict[str, object]:
    ledgers = [
        write_ledger(home / "episodes/alfworld-text-nano-chat", alfworld("nano-chat", 0.6, 1, per_kind=5)),
        write_ledger(home / "episodes/alfworld-text-random", alfworld("random", 0.0, 2, per_kind=5)),
        write_ledger(home / "episodes/alfworld-text-random-nano", alfworld("random:nano", 0.0, 3, per_kind=5)),
        write_ledger(home / "episodes/alfworld-text-expert", alfworld("expert", 1.0, 4, per_kind=5)),
        write_ledger(
            home / "episodes/intercode-sql-nano-chat",
            [episode(f"q{i}", Outcome.FAILED, score=0.2, benchmark="intercode/sql", category="easy") for i in range(9)],
        ),
    ]
    runs = [write_run(home / "runs/nano", steps=300), write_run(home / "runs/nano-chat", steps=300, chat=True)]
    corpus = write_corpus(home / "corpus/embedded")
    return render_report(home / "report", runs=runs, episodes=ledgers, corpus=corpus)


def test_the_page_stands_alone_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    whole_demo(tmp_path)
    index = tmp_path / "report/index.html"
    found = outline(index)
    targets = {index: found, **{path: outline(path) for path in index.parent.glob("transcripts/*.html")}}
    episodes = 0
    for link in found.links:
        assert not re.match(r"[a-z]+:|//", link), f"{link} leaves the page"
        file, _, anchor = link.partition("#")
        target = index.parent / file if file else index
        assert target.is_file(), link
        if anchor:
            assert anchor in targets[target].ids, link
            episodes += bool(file)
    assert episodes == 4 * 30 + 9


def test_the_page_shows_what_the_issue_asks_for(tmp_path: Path) -> None:
    whole_demo(tmp_path)
    text = (tmp_path / "report/index.html").read_text()
    wanted = [
        "random action", "untrained model", "expert", "puttwo", "Mixture, as asked and as built", "10", "bits per byte",
        "6n_causal", "tokens per second", "a3f0a3f0a3f0a3f0", "Table 7", "59.70", "never a goal in training",
        "by infra",
        "Lemur-70B-Chat",
    ]  # fmt: skip
    assert not [words for words in wanted if words not in text]


def test_the_numbers_beside_the_page_are_those_of_the_ledgers(tmp_path: Path) -> None:
    returned = whole_demo(tmp_path)
    numbers = json.loads((tmp_path / "report/report.json").read_text())
    assert numbers == json.loads(json.dumps(returned))
    by_policy = {(a["benchmark"], a["policy"]): a["overall"] for a in numbers["agents"]}
    assert by_policy["alfworld/text", "random"]["success"]["count"] == 0
    assert by_policy["intercode/sql", "nano-chat"]["mean_score"] == pytest.approx(0.2)
    assert [run["stage"] for run in numbers["training"]] == ["pretraining", "instruction tuning"]
    assert numbers["training"][0]["tokens_per_s"] == pytest.approx(8100)
    for name in ("episodes.csv", "losses.csv", "mixture.csv"):
        assert (tmp_path / "report" / name).read_text().count("\n") > 1


def test_missing_parts_are_said_plainly(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path / "e", [episode("a", Outcome.SOLVED)])
    unfinished = write_run(tmp_path / "runs/nano", steps=50, finished=False)
    numbers = render_report(tmp_path / "out", runs=[unfinished], episodes=[ledger, tmp_path / "gone"], corpus=None)
    said = " | ".join(numbers["missing"])
    for words in ("not finished", "no instruction tuning run", "no episodes.jsonl", "no corpus"):
        assert words in said
        assert words in (tmp_path / "out/index.html").read_text()
    alone = render_report(tmp_path / "alone", runs=[], episodes=[ledger, tmp_path / "gone"], corpus=None)
    page = (tmp_path / "alone/index.html").read_text()
    assert len(alone["missing"]) == 4
    assert "no episodes.jsonl" in page
    assert "no corpus" not in page, "evaluations alone need no training"


def test_no_episode_at_all_is_an_error_and_writes_no_page(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no episodes found"):
        render_report(tmp_path / "out", runs=[], episodes=[write_ledger(tmp_path / "e", [])], corpus=None)
    assert not (tmp_path / "out/index.html").exists()
    with pytest.raises(ReportError, match="no episodes"):
        render_run(tmp_path / "e")


def test_hostile_text_of_a_model_neither_acts_nor_hides(tmp_path: Path) -> None:
    hostile = episode("<b>task</b>", Outcome.FAILED, reply=HOSTILE, observation=HOSTILE, category=HOSTILE)
    write_ledger(tmp_path, [hostile])
    render_run(tmp_path, {"note": HOSTILE})
    found = outline(tmp_path / "index.html")
    assert "img" not in found.tags
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert text.count("<script>") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", text)
    assert "\\x1b" in text
    assert "\\u202e" in text


def test_a_long_reply_is_cut_and_the_cut_is_said() -> None:
    shown = block("x" * 200_000)
    assert len(shown) < 21_000
    assert "180,000 more characters" in shown


def test_printable_text_is_safe_in_a_terminal_and_plain_text_unchanged() -> None:
    assert printable("plain, tab\t and\nnewline: größer 日本") == "plain, tab\t and\nnewline: größer 日本"
    assert printable("\x1b]0;title\x07\x9b1m") == "\\x1b]0;title\\x07\\x9b1m"
    assert inline('<a href="x">') == "&lt;a href=&quot;x&quot;&gt;"
    assert slug("alfworld/text openai:http://x") == "alfworld-text-openai-http-x"
    assert slug("..//") == "unnamed"


def test_one_ledger_gives_a_page_with_its_transcripts(tmp_path: Path) -> None:
    write_ledger(tmp_path, alfworld("nano-chat", 0.5, 7, per_kind=3))
    report = render_run(tmp_path, {"agreement": "18 of 18"})
    found = outline(tmp_path / "index.html")
    played = stored_episodes(tmp_path / "episodes.jsonl")
    assert {anchor_of(episode.key) for episode in played} <= set(found.ids)
    numbers = json.loads((tmp_path / "report.json").read_text())
    assert numbers["n"] == report.overall.n == 18
    assert numbers["notes"] == {"agreement": "18 of 18"}


def test_large_runs_are_cut_into_pages_that_stay_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_pages, "PAGE_BYTES", 60_000)
    write_ledger(tmp_path, alfworld("nano-chat", 0.5, 7, per_kind=10))
    render_run(tmp_path)
    pages = sorted((tmp_path / "transcripts").glob("*.html"))
    assert len(pages) > 2
    assert sum(len([i for i in outline(page).ids if i.startswith("e")]) for page in pages) == 60
    ids = {page.name: outline(page).ids for page in pages}
    for link in outline(tmp_path / "index.html").links:
        file, _, anchor = link.partition("#")
        if file.startswith("transcripts/"):
            assert anchor in ids[Path(file).name]


def test_two_recipes_in_one_ledger_are_shown_apart(tmp_path: Path) -> None:
    first = [episode("a", Outcome.SOLVED, recipe="aaaaaaaa"), episode("b", Outcome.FAILED, recipe="aaaaaaaa")]
    write_ledger(tmp_path, [*first, episode("a", Outcome.FAILED, recipe="bbbbbbbb")])
    render_run(tmp_path)
    numbers = json.loads((tmp_path / "report.json").read_text())
    assert [run["recipe"] for run in numbers["runs"]] == ["aaaaaaaa", "bbbbbbbb"]
    assert [run["departures"] for run in numbers["runs"]] == [["settings not recorded"]] * 2
    assert "nano-chat aaaaaa" in (tmp_path / "index.html").read_text()


def test_of_several_versions_of_a_policy_the_newest_is_shown_and_the_others_are_named(tmp_path: Path) -> None:
    folders = []
    for age, (version, outcome) in enumerate([("900-aaaaaaaa", Outcome.SOLVED), ("400-bbbbbbbb", Outcome.FAILED)]):
        played = [episode(f"t{i}", outcome, policy=f"openai:nano-chat@{version}") for i in range(5)]
        folders.append(write_ledger(tmp_path / f"e{9 - age}", played))
        os.utime(folders[-1] / "episodes.jsonl", ns=(age, age))
    folders.append(write_ledger(tmp_path / "expert", [episode("t0", Outcome.SOLVED, policy="expert")]))
    numbers = render_report(tmp_path / "out", runs=[], episodes=folders, corpus=None)
    assert [run["policy"] for run in numbers["agents"]] == ["openai:nano-chat@400-bbbbbbbb", "expert"]
    assert [run["policy"] for run in numbers["earlier_versions"]] == ["openai:nano-chat@900-aaaaaaaa"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert "nano-chat, step 400" in page
    assert "nano-chat, step 900" not in page
    assert "openai:nano-chat@900-aaaaaaaa" in page.partition("Earlier versions")[2]
    assert "openai:nano-chat@900-aaaaaaaa" in (tmp_path / "out" / "episodes.csv").read_text()


def test_a_torn_last_line_of_metrics_is_ignored_and_the_first_line_of_a_step_wins(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "nano", steps=30)
    with (folder / "metrics.jsonl").open("a") as f:
        f.write('{"step": 30, "loss": 99.0}\n{"step": 40, "lo')
    run = read_run(folder)
    assert [line["step"] for line in run.metrics] == [10, 20, 30]
    assert run.last("loss") != 99.0


def test_a_broken_line_of_metrics_names_file_and_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "nano", steps=30)
    (folder / "metrics.jsonl").write_text('{"step": 1}\nnonsense\n')
    with pytest.raises(ReportError, match=r"metrics.jsonl, line 2"):
        read_run(folder)


def test_the_page_says_what_the_loss_is_of(tmp_path: Path) -> None:
    ledger = write_ledger(tmp_path / "e", [episode("a", Outcome.SOLVED)])
    runs = [write_run(tmp_path / name, steps=30, chat=name != "nano") for name in ("nano", "nano-chat")]
    render_report(tmp_path / "out", runs=runs, episodes=[ledger], corpus=None)
    page = (tmp_path / "out/index.html").read_text()
    assert not [words for words in ("every token", "the assistant alone (paper A.2)") if words not in page]


def test_a_diverged_run_gives_a_page_whose_numbers_are_json(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "nano", steps=30)
    with (folder / "metrics.jsonl").open("a") as f:
        f.write('{"step": 40, "loss": NaN, "tokens": Infinity, "time_s": 1.0}\n')
    ledger = write_ledger(tmp_path / "e", [episode("a", Outcome.SOLVED)])
    render_report(tmp_path / "out", runs=[folder], episodes=[ledger], corpus=None)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    json.loads((tmp_path / "out/report.json").read_text(), parse_constant=refuse)


def test_folders_are_found_under_the_home(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/nano", steps=20)
    write_ledger(tmp_path / "episodes/x", [episode("a", Outcome.SOLVED)])
    write_corpus(tmp_path / "corpus/chat")
    write_corpus(tmp_path / "corpus/embedded")
    runs, episodes, corpus = discover(tmp_path)
    assert [p.name for p in runs] == ["nano"]
    assert [p.name for p in episodes] == ["x"]
    assert corpus == tmp_path / "corpus/embedded"
    found = collect_inputs(runs, episodes, corpus)
    assert found.missing == ["no instruction tuning run was found"]


def test_policies_without_a_trained_model_are_baselines() -> None:
    assert display_name("openai:nano-chat") == "nano-chat"
    assert display_name("nano-chat@1500-3f9a01bc") == "nano-chat, step 1500"
    assert display_name("openai:nano-chat@1500-3f9a01bc") == "nano-chat, step 1500"
    assert display_name("openai:gpt@v2") == "gpt, version v2"
    assert all(map(baseline_of, ("random", "expert", "random:nano", "openai:random:nano")))
    assert baseline_of("nano-chat") is None


def test_published_numbers_are_counts_of_tasks() -> None:
    """Every percentage of Tables 4, 5 and 7 is k / n to the printed digits, but for four."""
    odd = set()
    for benchmark, column in COLUMNS.items():
        if column.table == "Table 3":
            continue
        assert set(column.values) == set(MODELS)
        for model, value in column.values.items():
            k = round(value * column.n / 100)
            if abs(100 * k / column.n - value) > 0.0051:
                odd.add((benchmark, model))
    # Bash: weighted means of rounded figures; SQL: a transposed digit; WebArena: cut, not rounded.
    assert odd == {
        ("IC-Bash", "gpt-3.5-turbo"),
        ("IC-Bash", "gpt-4"),
        ("IC-SQL", "gpt-4"),
        ("WebArena", "gpt-3.5-turbo"),
    }


def test_the_micro_average_of_table_4_follows_from_its_columns() -> None:
    columns = [COLUMNS[name] for name in REASONING]
    total = sum(c.n for c in columns)
    assert total == 316
    for model, printed in TABLE_4_MICRO.items():
        solved = sum(round(c.values[model] * c.n / 100) for c in columns)
        assert 100 * solved / total == pytest.approx(printed, abs=0.006)


def test_the_gain_of_table_6_is_the_difference_of_its_columns() -> None:
    for row in TABLE_6:
        if row.with_feedback is not None and row.gain is not None:
            assert row.with_feedback[2] - row.without[2] == pytest.approx(row.gain, abs=0.011)


def test_a_benchmark_of_another_protocol_says_so() -> None:
    assert describe_run("alfworld/text", EvaluationRun("expert")).other_protocol
    assert not describe_run("mint/alfworld", EvaluationRun("expert")).other_protocol
    assert (
        describe_run("alfworld/text", EvaluationRun("expert")).column
        == describe_run("mint/alfworld", EvaluationRun("expert")).column
        == "ALFWorld"
    )
    assert describe_run("unknown", EvaluationRun("expert")).column == ""


def test_figure_5_has_the_published_counts_by_category(tmp_path: Path) -> None:
    write_ledger(tmp_path, [episode("ctf-0", Outcome.SOLVED, benchmark="intercode/ctf", category="Forensics")])
    render_run(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert all(f"{solved}/{n}<" in page for solved, n in FIGURE_5_GPT_4.values())
    assert "37/100<" in page
    assert sum(solved for solved, _ in FIGURE_5_GPT_4.values()) == COLUMNS["IC-CTF"].values["gpt-4"]
