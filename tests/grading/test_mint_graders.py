"""Both graders of MINT on the cases on which they part, and on every answer of the recorded runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from envs.mint.recording import read_recording
from envs.mint.reply import tags
from envs.mint.tasks import load_mint_tasks
from lemur_ray.grading.choices import choice_matches, choice_matches_2023, named_options, options_of
from lemur_ray.grading.mint import grade
from lemur_ray.grading.numbers import plain_number
from lemur_ray.grading.short_answers import matches_2023, number_matches, phrase_matches
from lemur_ray.grading.theorem import theorem_matches, theorem_matches_2023

REASONING = ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu")
RUNS = [
    (model, setting)
    for model in ("Llama-2-70b-chat-hf", "CodeLlama-34b-Instruct-hf", "gpt-3.5-turbo-0613", "lemur-70b-chat-v1.even")
    for setting in ("F=None", "F=gpt-4-0613")
]
OPTIONS = {"a": "2.5 * 10^-23 kg", "b": "1", "c": "the u.s", "d": "a and b"}


def test_a_negative_reference_is_met_by_the_strict_grader_alone() -> None:
    assert not matches_2023("-108", "-108.0")
    assert number_matches("-108", "-108.0")


def test_sixteen_dollars_hold_a_six_for_the_old_grader_alone() -> None:
    assert matches_2023("16 dollars", "6")
    assert not number_matches("16 dollars", "6")
    assert number_matches("6 dollars", "6")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(
            ("-$1,234.50", -1234.5),
            ("25 %", 25.0),
            ("The answer is 12.", 12.0),
            ("$131,250", 131250.0),
            ("1e3", 1000.0),
        ),
        *(("7\n7", 7.0), ("x = -8", -8.0), ("-\\$5", -5.0), ("\u22125", -5.0)),
        *(("3 or 4", None), ("1/2", None), ("2^10", None), ("x2", None), ("20-30%", None), ("none", None)),
    ],
)
def test_a_number_is_read_where_there_is_exactly_one(text: str, number: float | None) -> None:
    assert plain_number(text) == number


def test_none_of_the_above_is_an_a_for_the_old_grader_alone() -> None:
    assert choice_matches_2023("None of the above", "a", OPTIONS)
    assert not choice_matches("None of the above", "a", OPTIONS)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        *(("b", "b"), ("(B)", "b"), ("b)", "b"), ("answer: b", "b"), ("The answer is A", "a"), ("A, 2.5 kg", "a")),
        *(("A\nA", "a"), ("a and b", "d"), ("D) A and B", "d"), ("1", "b"), ("the U.S.", "c")),
        *(("answer: b or c", "bc"), ("(b) or c", "bc"), ("The answer is (B) or maybe c", "bc"), ("not b", "")),
        *(("The answer is a blue thing", ""), ("answer: a", "a"), ("not (a) but (b)", "b")),
        *(("B\nC", "bc"), ("A dog", ""), ("I cannot determine it", ""), ("", "")),
    ],
)
def test_a_choice_is_a_letter_as_a_word_or_the_text_of_one_option(answer: str, named: str) -> None:
    assert named_options(answer, OPTIONS) == set(named)


def test_options_are_read_from_the_prompt() -> None:
    assert options_of("Which?\nOptions: A ) 6 , B ) 121. , C ) x") == {"a": "6", "b": "121", "c": "x"}
    with pytest.raises(ValueError, match="bracket"):
        options_of("Which? Options: none")


def test_phrases_match_at_borders_of_words() -> None:
    assert matches_2023("Unknown", "no")
    assert not phrase_matches("Unknown", "no")
    assert phrase_matches("The answer is: no.", "No")
    assert not phrase_matches("yes or no", "no")
    assert phrase_matches("Late 12th century", "the late 12th Century")
    assert not phrase_matches("1962", "196")


def test_options_of_theoremqa_differ_between_the_rules() -> None:
    assert not theorem_matches_2023("b", "b", "option", "legacy")
    assert theorem_matches_2023("b", "(b)", "option", "legacy")
    assert theorem_matches_2023("b", "b", "option", "head")
    for said in ("b", "(b)", "b)", "The answer is (b)"):
        assert theorem_matches(said, "b", "option")
    for said in ("a or b", "b), c)", "(c)", "none"):
        assert not theorem_matches(said, "b", "option")


@pytest.mark.parametrize(
    ("answer", "reference", "kind"),
    [
        *(("x = 0.5", 0.5, "float"), ("10^-3", 0.001, "float"), ("approximately 3.1 m", 3.1, "float")),
        *(
            ("2 x 3", 6, "integer"),
            ("1,024", 1024, "integer"),
            ("12 units", 12, "integer"),
            ("math.sqrt(16)", 4, "integer"),
        ),
        *(
            ("[0, 5]", [0, 5], "list of integer"),
            ("{5, 0}", [0, 5], "list of integer"),
            ("(0, 5)", [0, 5], "list of integer"),
        ),
        *(("yes", True, "bool"), ("It is False", False, "bool")),
    ],
)
def test_answers_of_theoremqa_are_read_as_in_the_recorded_runs(answer: str, reference: object, kind: str) -> None:
    assert theorem_matches_2023(answer, reference, kind)
    assert theorem_matches(answer, reference, kind)


def test_hostile_answers_are_wrong_and_quick() -> None:
    for text in (
        "9**9**9**9",
        "__import__('os').system('true')",
        "1" * 100_000,
        "(" * 5_000,
        "[0]*10**9",
        "math.pow(10, 1e9)",
    ):
        assert not theorem_matches_2023(text, 1, "integer")
        assert not theorem_matches(text, 1, "integer")
        assert not number_matches(text, "1")


@pytest.mark.parametrize(("model", "setting"), RUNS)
def test_every_recorded_answer_is_graded_as_it_was(data_dir: Path, model: str, setting: str) -> None:
    seen: Counter[str] = Counter()
    for subset in REASONING:
        tasks = {task.id: task.options for task in load_mint_tasks(subset, data_dir)}
        log = read_recording(data_dir / "mint" / "outputs" / model / setting / f"{subset}.results.jsonl.gz")
        for episode in log.episodes.values():
            options = tasks[episode.task]
            verdicts = []
            for turn in episode.turns:
                asked = tags(turn.reply)
                if asked.kind != "propose" or asked.content is None:
                    continue
                verdict = grade(
                    subset,
                    asked.content,
                    options["reference"],
                    prompt=options["prompt"],
                    answer_type=options.get("answer_type", ""),
                )
                verdicts.append(verdict.mint_2023)
            assert any(verdicts) == episode.solved, f"{model} {setting} {subset} {episode.task}: {verdicts}"
            assert not any(verdicts[:-1]), f"{subset} {episode.task} was accepted before its last proposal"
            seen[subset] += 1
    assert seen.total() in (316, 159)


@pytest.mark.parametrize(
    ("answer", "reference", "kind"),
    [
        *(
            ("True False", True, "bool"),
            ("not True", True, "bool"),
            ("true or false", False, "bool"),
            ("", False, "bool"),
        ),
        *(
            ("", 0, "integer"),
            ("$", 0.0, "float"),
            ("True", 1, "integer"),
            ("yes", 1, "integer"),
            ("6 or 7", 6, "integer"),
        ),
    ],
)
def test_no_answer_two_answers_and_truth_values_are_no_number_for_the_strict_grader(
    answer: str, reference: object, kind: str
) -> None:
    assert not theorem_matches(answer, reference, kind)
