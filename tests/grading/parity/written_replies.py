"""GSM8K, BIG-Bench Hard and MMLU beside lm-eval: stored replies of many forms, and why verdicts differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.language.bbh.answers import FILES, grade_cot, grade_direct
from envs.language.gsm8k import numbers
from envs.language.mmlu import letters
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded
from lemur_ray.benchmarks.rows import read_cells, read_rows
from tests.grading.parity.causes import LM_EVAL
from tests.grading.parity.compare import Difference, Reply, ask_peer, differences

Row = Mapping[str, Any]
Grade = Callable[[str, Mapping[str, Any]], Graded]
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
GSM8K = {"cot": "gsm8k/gsm8k-cot.yaml", "plain": "gsm8k/gsm8k.yaml"}
MMLU = {
    "generative": "mmlu/generative/_default_template_yaml",
    "flan": "mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml",
}
BBH = {"cot": "bbh/cot_fewshot", "direct": "bbh/fewshot", "zero": "bbh/cot_zeroshot"}
SUBJECTS = ("abstract_algebra", "computer_security", "global_facts", "jurisprudence", "world_religions")
EVERY = 8
"""One of so many questions of BIG-Bench Hard gets replies made by the script."""


def number_forms(gold: str, steps: str) -> dict[str, str]:
    """Replies to a question of GSM8K by how they are made. ``gold``: its number, ``steps``: its solution's text."""
    other = str(int(gold.replace(",", "")) + 1)
    return {
        "gold": f"{steps} The answer is {gold}.",
        "gold, ####": f"{steps}\n#### {gold}",
        "another number": f"{steps} The answer is {other}.",
        "another number, ####": f"{steps}\n#### {other}",
        "no full stop": f"{steps} The answer is {gold}",
        "in dollars": f"{steps} The answer is ${gold}.",
        "with a unit": f"{steps} The answer is {gold} apples.",
        "in bold": f"{steps} The answer is **{gold}**.",
        "in a box": f"{steps} \\boxed{{{gold}}}",
        "with decimals": f"{steps} The answer is {gold}.00.",
        "negative": f"{steps} The answer is -{gold}.",
        "in capitals": f"{steps} THE ANSWER IS {gold}.",
        "a number after it": f"{steps} The answer is {gold}. That took step 1 to step 3.",
        "a unit with a number": f"{steps} The answer is {gold} boxes of 12.",
        "an equation": f"{steps} So x = {gold}",
        "alone": gold,
        "two answers, the last right": f"The answer is {other}. No: the answer is {gold}.",
        "two answers, the first right": f"The answer is {gold}. No: the answer is {other}.",
        "the next question": f"{steps} The answer is {gold}.\n\nQ: And two more?\nA: The answer is {other}.",
        "cut": steps[: len(steps) // 2],
        "every number": " ".join(map(str, range(100))),
        "every answer": " ".join(f"The answer is {n}." for n in range(100)),
        "nothing": "",
        "a refusal": "I cannot solve this.",
    }


def letter_forms(gold: str, text: str, other: str, other_text: str) -> dict[str, str]:
    """Replies to a question of MMLU. ``gold`` and ``other``: a right and a wrong letter with their options' texts."""
    return {
        "gold": gold,
        "gold, a blank before it": f" {gold}",
        "gold in brackets": f"({gold})",
        "gold with a full stop": f"{gold}.",
        "gold with its text": f"{gold}. {text}",
        "its text alone": text,
        "gold, then a line": f"{gold}\nBecause it is.",
        "announced": f"Let us see. The answer is ({gold}).",
        "announced without brackets": f"Let us see. The answer is {gold}.",
        "announced in bold": f"The answer is **{gold}**.",
        "another letter": other,
        "another letter, announced": f"The answer is ({other}).",
        "ruled out": f"The answer is not ({gold}). It is ({other}).",
        "right, others ruled out": f"({other}) is incorrect. ({gold}) is correct.",
        "right before the others": f"Option ({gold}) is correct; option ({other}) is not.",
        "small letter": gold.lower(),
        "all letters": "A B C D",
        "all letters in brackets": "(A) (B) (C) (D)",
        "an article": f"A good question. The answer is ({gold}).",
        "nothing": "",
        "a refusal": "I do not know.",
        "the next question": f"{gold}\n\nQ: And this?\nA: {other}",
    }


def bbh_forms(gold: str, other: str) -> dict[str, str]:
    """Replies to a question of BIG-Bench Hard. ``other``: the answer of another question of the file."""
    return {
        "gold": f"Let us see. So the answer is {gold}.",
        "gold alone": gold,
        "gold with a full stop": f"{gold}.",
        "another answer": f"So the answer is {other}.",
        "another answer alone": other,
        "no full stop": f"So the answer is {gold}",
        "text after it": f"So the answer is {gold}. That was easy.",
        "in bold": f"So the answer is **{gold}**.",
        "two answers, the last right": f"So the answer is {other}. No, the answer is {gold}.",
        "two answers, the first right": f"So the answer is {gold}. No, the answer is {other}.",
        "in small letters": f"so the answer is {gold.lower()}.",
        "the next question": f"So the answer is {gold}.\n\nQ: And this?\nA: So the answer is {other}.",
        "nothing": "",
        "a refusal": "I cannot tell.",
    }


def gsm8k_replies(data: Path) -> tuple[list[Row], list[Reply]]:
    """The questions of GSM8K as rows of lm-eval's task, and the replies to them."""
    rows = list(read_rows(data / "bench/gsm8k/test.jsonl.gz"))
    recorded = {row["question"]: row for row in read_rows(data / "bench/gsm8k/labelled_model_solutions.jsonl.gz")}
    replies = []
    for place, row in enumerate(rows):
        gold = numbers.final_answer(row["answer"])
        steps = numbers.CALCULATOR.sub("", row["answer"].partition("####")[0]).strip()
        made = number_forms(gold, steps)
        for model in MODELS:
            text, _, number = recorded[row["question"]][model]["solution"].rpartition("A: ")
            made[f"recorded, {model}"] = f"{text}The answer is {number}."
        replies += [Reply(kind, str(place), text, {"row": place, "reference": gold}) for kind, text in made.items()]
    return rows, replies


def mmlu_replies(data: Path) -> tuple[list[Row], list[Reply]]:
    """Questions of five subjects of MMLU as rows of lm-eval's tasks, and the replies to them."""
    cells = [
        row
        for subject in SUBJECTS
        for path in sorted((data / "bench/mmlu/test").glob(f"{subject}_test.csv*"))
        for row in read_cells(path)
    ]
    rows, replies = [], []
    for place, (asked, *options, gold) in enumerate(cells):
        right = letters.LETTERS.index(gold)
        wrong = (right + 1) % len(options)
        rows.append({"question": asked, "choices": options, "answer": right})
        made = letter_forms(gold, options[right], letters.LETTERS[wrong], options[wrong])
        more = {"row": place, "reference": gold, "options": options}
        replies += [Reply(kind, str(place), text, more) for kind, text in made.items()]
    return rows, replies


def bbh_replies(data: Path, file: str) -> tuple[list[Row], dict[str, list[Reply]]]:
    """The questions of a file as rows of lm-eval's tasks, and by kind of prompt the replies to them: recorded ones of
    every question, and those made by the script."""
    rows = list(read_rows(data / f"bench/bbh/{file}.jsonl.gz"))
    made: list[Reply] = []
    for place, row in list(enumerate(rows))[::EVERY]:
        other = next((one["target"] for one in rows if one["target"] != row["target"]), "(Z)")
        more = {"row": place, "reference": row["target"]}
        item = f"{file}/{row['i']}"
        made += [Reply(kind, item, text, more) for kind, text in bbh_forms(row["target"], other).items()]
    replies = {}
    for kind in ("cot", "direct"):
        predictions = {r["i"]: r["prediction"] for r in read_rows(data / f"bench/bbh_outputs/{kind}/{file}.jsonl.gz")}
        replies[kind] = made + [
            Reply("recorded", f"{file}/{row['i']}", predictions[row["i"]], {"row": place, "reference": row["target"]})
            for place, row in enumerate(rows)
        ]
    return rows, replies


def compared(
    name: str,
    replies: Sequence[Reply],
    grade: Grade,
    reading: str,
    theirs: Sequence[bool],
    published: Callable[[Sequence[Reply]], Sequence[bool]],
) -> list[Difference]:
    """The differences of one reading of this project from the verdicts of one filter, ``published`` for replies."""

    def verdict(reply: Reply) -> bool:
        return bool(grade(reply.text, reply.more).scores[reading])

    return differences(name, replies, [verdict(reply) for reply in replies], theirs, LM_EVAL, verdict, published)


def _family(task: str) -> str:
    """A task's name without the file of BIG-Bench Hard."""
    return "_".join(task.split("_")[:2])


def _number(reply: str, options: Mapping[str, Any]) -> Graded:
    return numbers.grade(reply, {"reference": {"answer": options["reference"], "rule": "standard"}})


def beside_lm_eval(
    python: str, data: Path, folder: Path, files: Sequence[str] = FILES, every: int = 1
) -> Iterator[tuple[str, list[Reply], list[Difference]]]:
    """Yield (comparison, replies, differences) for all readings of GSM8K, MMLU and the ``files`` of BIG-Bench Hard.
    ``python``: one with lm-eval; ``data``: the project's data; ``folder``: for the peers' data; ``every``: takes one
    reply of so many."""
    tasks: dict[str, Any] = {}
    asked: list[tuple[str, list[Reply], Grade, dict[str, str]]] = []

    def add(
        task: str, include: str, rows: list[Row], replies: list[Reply], grade: Grade, pairs: dict[str, str]
    ) -> None:
        path = folder / f"{task}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        split = dict.fromkeys(("test", "train", "dev", "validation"), str(path))
        tasks[task] = {"include": include, "files": split}
        asked.append((task, replies[::every], grade, pairs))

    rows, replies = gsm8k_replies(data)
    both = {"strict-match": STRICT, "flexible-extract": FLEXIBLE}
    for form, include in GSM8K.items():
        add(f"gsm8k_{form}", include, rows, replies, _number, both)
    rows, replies = mmlu_replies(data)
    add("mmlu_generative", MMLU["generative"], rows, replies, letters.grade, {"get_response": STRICT})
    add("mmlu_flan", MMLU["flan"], rows, replies, letters.grade, {"flexible-extract": FLEXIBLE})
    for file in files:
        rows, of_kind = bbh_replies(data, file)
        add(f"bbh_cot_{file}", f"{BBH['cot']}/{file}.yaml", rows, of_kind["cot"], grade_cot, {"get-answer": STRICT})
        add(
            f"bbh_direct_{file}",
            f"{BBH['direct']}/{file}.yaml",
            rows,
            of_kind["direct"],
            grade_direct,
            {"none": STRICT},
        )
        add(
            f"bbh_zero_{file}",
            f"{BBH['zero']}/{file}.yaml",
            rows,
            of_kind["cot"],
            grade_cot,
            {"flexible-extract": FLEXIBLE},
        )
    sent = [
        {"task": task, "row": reply.more["row"], "text": reply.text} for task, replies, *_ in asked for reply in replies
    ]
    verdicts = ask_peer(python, "lm_eval_peer.py", {"tasks": tasks, "replies": sent})
    gathered: dict[str, tuple[list[Reply], list[Difference]]] = {}
    for task, replies, grade, pairs in asked:
        own, verdicts = verdicts[: len(replies)], verdicts[len(replies) :]
        for filter_name, reading in pairs.items():
            name = f"{_family(task)} {filter_name}"
            theirs = [one[filter_name] for one in own]
            every_reply, every_difference = gathered.setdefault(name, ([], []))
            every_reply += replies

            def published(more: Sequence[Reply], task: str = task, of: str = filter_name) -> list[bool]:
                again = [{"task": task, "row": reply.more["row"], "text": reply.text} for reply in more]
                answered = ask_peer(python, "lm_eval_peer.py", {"tasks": {task: tasks[task]}, "replies": again})
                return [verdict[of] for verdict in answered]

            every_difference += compared(name, replies, grade, reading, theirs, published)
    for name, (replies, differing) in gathered.items():
        yield name, replies, differing
