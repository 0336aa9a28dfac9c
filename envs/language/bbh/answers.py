"""What counts as the answer to a question of BIG-Bench Hard, and how its files are averaged.

``standard``: after "the answer is" up to a full stop, or the whole text; equal letter for letter. ``lemur``: as the
scripts released with Lemur do it, made for answers alone: what stands before the first full stop, without case and
punctuation, so that a bracket or a minus is as good as none.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.question import Graded, continues_prompt

MERGED = ("logical_deduction", "tracking_shuffled_objects")
"""Tasks of three files each, which are one task where 23 are counted."""
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
RELAXED = "no case, no punctuation"
_ANSWER = re.compile(r"the answer is (.*?)\.")
_BRACKETED = re.compile(r"\((.)\)")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def grade_cot(reply: str, options: Mapping[str, Any]) -> Graded:
    match = _ANSWER.search(reply)
    return _graded(match[1] if match else reply, options["reference"])


def grade_direct(reply: str, options: Mapping[str, Any]) -> Graded:
    return _graded(_without_cue(reply), options["reference"])


def grade_lemur(reply: str, options: Mapping[str, Any]) -> Graded:
    said = lemur_answer(reply if continues_prompt(options) else _without_cue(reply))
    return Graded(float(_bare(said) == _bare(options["reference"])), said or None)


def lemur_answer(reply: str) -> str:
    """What the released script takes for the answer."""
    said = reply.strip().split("\n\n")[0].split(".")[0]
    if "(" in said and ")" in said and "[" not in said and "]" not in said and (letter := _BRACKETED.search(said)):
        return letter[1]
    return said


def _without_cue(reply: str) -> str:
    """An answer whose ``A:`` nobody began for it, so that it may say that itself."""
    return reply.strip().removeprefix("A:").strip()


def _graded(said: str, target: str) -> Graded:
    exact = float(said == target)
    relaxed = float(_bare(said) == _bare(target))
    return Graded(exact, said or None, scores={"exact": exact, RELAXED: relaxed})


def _bare(text: str) -> str:
    return text.lower().translate(_NO_PUNCTUATION)


def macro_averages(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Means over files, and over tasks where the files of one task are merged: of the score and of the relaxed one."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    if not scored:
        return {}
    found: dict[str, Any] = {"files": len({episode.category for episode in scored})}
    for name, value in (("", _solved), (f", {RELAXED}", _relaxed)):
        if name and not any(episode.scores for episode in scored):
            continue
        by_file: dict[str, list[float]] = {}
        for episode in scored:
            by_file.setdefault(episode.category, []).append(value(episode))
        files = {file: _mean(values) for file, values in by_file.items()}
        by_task: dict[str, list[float]] = {}
        for file, mean in files.items():
            by_task.setdefault(next((task for task in MERGED if file.startswith(task)), file), []).append(mean)
        found[f"mean_of_files{name}"] = _mean(list(files.values()))
        found[f"mean_of_tasks{name}"] = _mean([_mean(means) for means in by_task.values()])
    return found


def _solved(episode: Episode) -> float:
    return float(episode.outcome is Outcome.SOLVED)


def _relaxed(episode: Episode) -> float:
    return float(episode.scores.get(RELAXED, 0.0))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
