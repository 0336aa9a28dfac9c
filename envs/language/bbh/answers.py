"""Extracts and grades answers to BIG-Bench Hard, and averages over its files.

``strict``: the text after "the answer is" up to a full stop, or the whole reply; must equal the reference exactly.
``flexible``: the answer as a person reads it, by the form of the reference (a letter, a number, yes or no, a list of
words, brackets). ``released``: as in the scripts released with Lemur: the text before the first full stop, without case
and punctuation, so that brackets and minus signs do not count, and an empty answer equals a reference of brackets. The
score is the strict verdict in mode standard, the released one in mode lemur."""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.question import FLEXIBLE, RELEASED, STRICT, Graded, by_category, continues_prompt
from lemur_ray.grading.written_answers import brackets_in, chosen_word, final_number, listed_words, same_number
from lemur_ray.grading.written_letters import chosen_letter

MERGED = ("logical_deduction", "tracking_shuffled_objects")
"""Tasks with three files each. They count as one task in the average over the benchmark's 23 tasks."""
FILES = (
    *("boolean_expressions", "causal_judgement", "date_understanding", "disambiguation_qa", "dyck_languages"),
    *("formal_fallacies", "geometric_shapes", "hyperbaton"),
    *(f"logical_deduction_{n}_objects" for n in ("five", "seven", "three")),
    *("movie_recommendation", "multistep_arithmetic_two", "navigate", "object_counting", "penguins_in_a_table"),
    *("reasoning_about_colored_objects", "ruin_names", "salient_translation_error_detection", "snarks"),
    *("sports_understanding", "temporal_sequences"),
    *(f"tracking_shuffled_objects_{n}_objects" for n in ("five", "seven", "three")),
    *("web_of_lies", "word_sorting"),
)
OPTIONS = "ABCDEFGHIJKLMNOPQR"
"""Letters of the longest list of options"""
_PAIRS = (("yes", "no"), ("true", "false"), ("valid", "invalid"), ("plausible", "implausible"))
RELAXED = "no case, no punctuation"
_ANSWER = re.compile(r"the answer is (.*?)\.")
_BRACKETED = re.compile(r"\((.)\)")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def grade_cot(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the text between "the answer is" and a full stop, else the whole reply, equals
    ``options["reference"]``. options: those of the task."""
    match = _ANSWER.search(reply)
    return _graded(reply, match[1] if match else reply, options["reference"])


def grade_direct(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the reply, without a leading ``A:``, equals ``options["reference"]``, else 0. The verdicts of the
    other rules are in ``scores``. options: those of the task."""
    return _graded(reply, _without_cue(reply), options["reference"])


def grade_lemur(reply: str, options: Mapping[str, Any]) -> Graded:
    """Grade a reply by the scripts released with Lemur; the verdicts of the other rules are in ``scores``, too.
    options: those of the task; the reply is compared with ``options["reference"]``."""
    answer, target = lemur_answer(reply if continues_prompt(options) else _without_cue(reply)), options["reference"]
    released = float(_normalised(answer) == _normalised(target))
    scores = {RELEASED: released, STRICT: float(_without_cue(reply) == target), FLEXIBLE: float(means(reply, target))}
    return Graded(released, answer or None, scores=scores)


def lemur_answer(reply: str) -> str:
    """The answer that the scripts released with Lemur extract: the first sentence, or the letter in its brackets."""
    text = reply.strip().split("\n\n")[0].split(".")[0]
    if "(" in text and ")" in text and "[" not in text and "]" not in text and (letter := _BRACKETED.search(text)):
        return letter[1]
    return text


def _without_cue(reply: str) -> str:
    """A reply without the ``A:`` that it may repeat, if the prompt did not end in one."""
    return reply.strip().removeprefix("A:").strip()


def _graded(reply: str, answer: str, target: str) -> Graded:
    exact = float(answer == target)
    relaxed = float(_normalised(answer) == _normalised(target))
    changed = len(set(_ANSWER.findall(reply))) > 1
    flexible = float((exact and not changed) or means(reply, target))
    scores = {"exact": exact, RELAXED: relaxed, STRICT: exact, FLEXIBLE: flexible}
    return Graded(exact, answer or None, scores=scores)


def means(reply: str, target: str) -> bool:
    """Whether a reply, as a person reads it, answers ``target``: a letter in brackets, a number, a word such as yes, a
    sequence of brackets, or a list of words."""
    reply = _without_cue(reply)
    if letter := re.fullmatch(r"\(([A-Z])\)", target):
        return chosen_letter(reply, OPTIONS) == letter[1]
    if re.fullmatch(r"-?\d+", target):
        return same_number(final_number(reply), target)
    if pair := next((pair for pair in _PAIRS if target.lower() in pair), None):
        return chosen_word(reply, pair) == target.lower()
    if not _normalised(target).strip():
        return brackets_in(reply) == "".join(target.split())
    words = target.lower().split()
    return listed_words(reply, len(words)) == words


def _normalised(text: str) -> str:
    return text.lower().translate(_NO_PUNCTUATION)


def macro_averages(episodes: Sequence[Episode]) -> dict[str, Any]:
    """For reports: ``files``, the number of BBH's 27 files with a scored episode; ``mean_of_files`` and
    ``mean_of_tasks`` (23, merged from files), means of their success rates; the same of the relaxed score, if episodes
    have it. {} if none is scored."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    if not scored:
        return {}
    averages: dict[str, Any] = {"files": len({episode.category for episode in scored})}
    scores: dict[str, Callable[[Episode], float]] = {
        "": lambda episode: episode.outcome is Outcome.SOLVED,
        f", {RELAXED}": lambda episode: episode.scores.get(RELAXED, 0.0),
    }
    for name, value in scores.items():
        if name and not any(episode.scores for episode in scored):
            continue
        files = {file: fmean(values) for file, values in by_category(scored, value).items()}
        by_task: dict[str, list[float]] = {}
        for file, mean in files.items():
            by_task.setdefault(next((task for task in MERGED if file.startswith(task)), file), []).append(mean)
        averages[f"mean_of_files{name}"] = fmean(files.values())
        averages[f"mean_of_tasks{name}"] = fmean(map(fmean, by_task.values()))
    return averages
