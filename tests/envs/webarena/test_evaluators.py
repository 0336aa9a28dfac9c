"""Scores from answers, addresses and pages, in upstream's way and strictly; judges whose answers are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.evaluators.evaluate import Evaluator, needs_judge
from envs.webarena.evaluators.judge import AskingJudge, NoJudge, NoVerdict, StoredAnswers
from envs.webarena.evaluators.program_html import ScriptFailed, call_helper, member_role, post_url, program_html
from envs.webarena.evaluators.string_match import clean_answer, must_include, string_match, word_tokens
from envs.webarena.evaluators.url_match import url_match
from envs.webarena.judging import JudgeMissing, judge_of
from tests.envs.mint.picky_teacher import picky_teacher

GITLAB = "http://gitlab.test:8023"


class FakePage:
    """A page of fixed sources by address; scripts are looked up."""

    def __init__(self, pages: dict[str, str], at: str = "", scripts: dict[str, Any] | None = None) -> None:
        self.pages, self.at, self.scripts = pages, at, scripts or {}
        self.ran: list[str] = []

    def url(self) -> str:
        return self.at

    def goto(self, url: str) -> None:
        self.at = url

    def content(self) -> str:
        return self.pages[self.at]

    def evaluate(self, script: str) -> Any:
        self.ran.append(script)
        if script not in self.scripts:
            raise ScriptFailed(script)
        return self.scripts[script]


def asking(answers: dict[str, Any], kinds: tuple[str, ...] = ("string_match",), **more: Any) -> dict[str, Any]:
    return {"task_id": 7, "intent": "Q?", "eval": {"eval_types": list(kinds), "reference_answers": answers, **more}}


def test_an_answer_is_cleaned_of_blanks_one_pair_of_quotes_and_case() -> None:
    assert [clean_answer(text) for text in (" 'Ab' ", "\"'x'\"", "'", "a'", "")] == ["ab", "'x'", "", "a'", ""]


def test_one_character_must_be_a_word_of_its_own_only_where_it_is_the_only_reference() -> None:
    assert string_match(asking({"must_include": ["0"]}), "10", NoJudge()) == 0
    assert string_match(asking({"must_include": ["0", "1"]}), "10", NoJudge()) == 1
    assert word_tokens("(0), in total: $2.00") == ["(", "0", ")", ",", "in", "total", ":", "$", "2.00"]


@pytest.mark.parametrize(
    ("said", "is_word"),
    [("`0`", 1), ("it is '0'", 1), ("a'0'", 1), ("``0 ``", 1), ('"0" of 3', 1), ("0's", 1), ("'00'", 0), ("0'", 1)],
)
def test_words_stand_in_backticks_and_quotes_as_upstreams_tokens_do(said: str, is_word: int) -> None:
    assert must_include("0", said, as_word=True) == is_word


@pytest.mark.parametrize(
    ("said", "strict"), [("$0.00", 1), ("0.", 1), ("0.5", 0), ("10", 0), ("1.0", 0), ("a0", 0), ("0,5", 0), ("0-1", 1)]
)
def test_strict_takes_a_number_for_what_it_is(said: str, strict: int) -> None:
    assert must_include("0", said, as_word=True, strict=True) == strict


def test_items_that_are_a_text_are_no_items() -> None:
    with pytest.raises(ValueError, match="must_include: a str, expected a list"):
        string_match(asking({"must_include": "$51"}), "1 5 $", NoJudge())


def test_an_exact_na_needs_no_judge_and_anything_else_does() -> None:
    record = asking({"fuzzy_match": "N/A"}, string_note="there is no such shop")
    assert string_match(record, "n/a", NoJudge()) == 1
    with pytest.raises(NoVerdict, match="judge"):
        string_match(record, "no such shop", NoJudge())
    scored = Evaluator().score(record, "no such shop", FakePage({}))
    assert (scored.score, scored.verdict) == (0, False)
    assert needs_judge(record)


def test_a_judges_answers_are_read_as_upstream_reads_them_kept_and_replayed(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return {"a": "Correct.", "b": "partially correct", "c": "INCORRECT", "d": "hm"}[question[-1]]

    kept = tmp_path / "judge.jsonl"

    def score(letter: str, ask: Callable[[str], str]) -> float:
        judge = AskingJudge(lambda question: ask(question.split("Answer: ")[1].split("\n")[0]), StoredAnswers(kept))
        return string_match(asking({"fuzzy_match": ["ref"]}), letter, judge)

    assert [score(letter, ask) for letter in "abc"] == [1, 0, 0]
    assert len(asked) == 3

    def nobody(question: str) -> str:
        raise AssertionError("asked again")

    assert [score(letter, nobody) for letter in "abc"] == [1, 0, 0]
    with pytest.raises(NoVerdict, match="neither"):
        score("d", ask)


def test_an_answer_that_a_judge_is_not_told_has_no_verdict_and_a_judge_that_is_not_there_is_missing() -> None:
    record = asking({"fuzzy_match": ["ref"]})
    with picky_teacher() as url:
        judge = Evaluator(judge=judge_of(f"openai:{url}#t", ""))
        for said in ["something forbidden", "something banned"] * 2:
            scored = judge.score(record, said, FakePage({}))
            assert (scored.score, scored.verdict) == (0, False)
            assert "does not answer about this" in scored.why
        assert "neither" in judge.score(record, "7.25 " * 200_000, FakePage({})).why, "it was shown a part of that"
        closed = Evaluator(judge=judge_of(f"openai:{url.replace('/v1', '/closed')}#t", ""))
        with pytest.raises(JudgeMissing):
            closed.score(record, "something forbidden", FakePage({}))


def test_what_one_judge_said_is_no_other_judges_answer_and_what_nobody_can_read_is_asked_again(tmp_path: Path) -> None:
    kept, record = tmp_path / "judge.jsonl", asking({"fuzzy_match": ["ref"]})

    def score(reply: str, who: str) -> float:
        return string_match(record, "a", AskingJudge(lambda question: reply, StoredAnswers(kept), who))

    with pytest.raises(NoVerdict):
        score("hm", "strict-judge")
    assert score("incorrect", "strict-judge") == 0
    assert score("hm", "strict-judge") == 0, "kept"
    assert score("hm", "") == 0, "replayed: it is one judge's file"
    assert score("correct", "kind-judge") == 1
    assert [score("hm", who) for who in ("strict-judge", "kind-judge")] == [0, 1]
    with pytest.raises(ValueError, match=r"several judges \(kind-judge, strict-judge\)"):
        score("hm", "")


def test_the_reason_judge_overwrites_upstreams_score_and_is_asked_strictly_only_without_an_exact_na() -> None:
    record = asking({"must_include": ["zebra"], "fuzzy_match": "N/A"}, string_note="note")
    same = AskingJudge(lambda question: "same")
    assert string_match(record, "n/a", same) == 1  # must_include failed, then was overwritten (W4)
    assert string_match(record, "n/a", same, strict=True) == 0


def test_upstream_takes_letters_after_the_address_and_foreign_hosts_and_strict_does_not() -> None:
    gold = f"{GITLAB}/byteblaze/dotfiles"
    for said, upstream, strict in [
        (f"{gold}/", 1, 1),
        (f"{gold}/-/issues", 1, 1),
        (f"{gold}xyz", 1, 0),
        ("http://other.test/gitlab.test:8023/byteblaze/dotfiles", 1, 0),
        (GITLAB, 0, 0),
        ("about:blank", 0, 0),
        ("http://[broken", 0, 0),
    ]:
        assert (url_match(gold, said), url_match(gold, said, strict=True)) == (upstream, strict), said


def test_what_a_semicolon_sets_apart_is_no_part_of_an_address() -> None:
    assert url_match(f"{GITLAB}/a;v=1", f"{GITLAB}/a") == 1
    assert url_match(f"{GITLAB}/a;v=1", f"{GITLAB}/b;v=1") == 0


def test_of_a_querys_keys_each_must_have_one_of_the_values_of_all_alternatives() -> None:
    golds = f"{GITLAB}/a?x=1 |OR| {GITLAB}/b?x=2"
    assert url_match(golds, f"{GITLAB}/a?x=2&y=3") == 1
    assert url_match(golds, f"{GITLAB}/a?y=3") == 0
    with pytest.raises(ValueError, match="url_note"):
        url_match(golds, GITLAB, rule="EXACT")


def target(url: str = "last", locator: str = "", **contents: Any) -> dict[str, Any]:
    return {"url": url, "locator": locator, "required_contents": contents}


def test_pages_scripts_and_helpers_are_looked_into() -> None:
    page = FakePage(
        {"u": "A &amp; B <!-- hidden -->"},
        "u",
        {"document.title": "Ready", "document.none": None, "document.yes": True},
    )
    assert program_html([target(must_include=["a & b", "nope |OR| hidden"])], page, {}) == 1
    assert program_html([target(locator="document.title", exact_match="ready")], page, {}) == 1
    assert program_html([target(locator="document.none", exact_match="None")], page, {}) == 1
    assert program_html([target(locator="document.yes", exact_match="True")], page, {}) == 1
    assert program_html([target(locator="document.throws", exact_match="")], page, {}) == 1
    assert program_html([target(must_include=["zebra"]), target(must_include=["A"])], page, {}) == 0
    with pytest.raises(ValueError, match="locator"):
        program_html([target(locator="page.foo", must_include=["x"])], page, {})
    with pytest.raises(ValueError, match="contents"):
        program_html([target(includes="x")], page, {})


def test_the_page_an_episode_ended_on_is_judged_whatever_other_pages_are_looked_at_before() -> None:
    there = f"{GITLAB}/f/cats/12/title"
    pages = {there: "ended here", "http://other.test": "other", f"{GITLAB}/f/cats/12/": "the post"}
    post = target("func:reddit_get_post_url('__last_url__')", must_include=["post"])
    targets = [target("http://other.test", must_include=["other"]), target(must_include=["ended"]), post]
    both = asking({}, ("program_html", "url_match"), reference_url=there, program_html=targets)
    assert Evaluator().score(both, "", FakePage(pages, there)).score == 1


def test_what_is_prepared_may_fail_and_the_script_runs_all_the_same() -> None:
    page = FakePage({}, "u", {"document.x": "1"})
    prepared = {**target(locator="document.x", exact_match="1"), "prep_actions": ["document.bad()", "document.never()"]}
    assert program_html([prepared], page, {}) == 1
    assert page.ran == ["document.bad()", "document.x"]


@pytest.mark.parametrize(
    "call",
    [
        "__import__('os').system('true')", "reddit_get_post_url(open('x'))", "unknown('x')",
        "reddit_get_post_url('a', 'b', 'c')",
        "reddit_get_post_url(url='x')", "reddit_get_post_url('x') or 1", "(" * 400,
    ],
)  # fmt: skip
def test_no_helper_but_the_known_ones_with_literals_is_called(call: str) -> None:
    with pytest.raises(ValueError, match="helper"):
        call_helper(call, FakePage({}), {"reddit_get_post_url": post_url})


def test_helpers_find_the_post_of_a_comment_and_the_role_of_a_member() -> None:
    page = FakePage({}, "http://r.test/f/cats/12/some-title/-/comment/9")
    assert call_helper("reddit_get_post_url('__last_url__')", page, {"reddit_get_post_url": post_url}) == (
        "http://r.test/f/cats/12/"
    )
    assert post_url(page, "http://r.test/user/x") == "http://r.test/user/x"
    assert member_role(page, 'a"]; b') == ""
    assert "\\u0022" in page.ran[-1]
