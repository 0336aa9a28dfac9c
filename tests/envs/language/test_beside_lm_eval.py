"""lm-eval on the same endpoint: the same items, the same verdicts, in no less time; where they part, why.

lm-eval's own tasks read the files that our benchmarks read. The endpoint says to each question what some model was
recorded to say to it, in the form that the examples of a prompt have.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.programs.humaneval.completion import program_of
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.rows import read_rows
from tests.agents.misbehaving import Answer, serving
from tests.envs.language.conftest import Found
from tests.envs.questions import play, tasks_of

ROOT = Path(__file__).resolve().parents[3]
BBH = {"boolean_expressions": (0, 12), "dyck_languages": (0, 12), "navigate": (0, 12), "word_sorting": (0, 12)}
BBH |= {"reasoning_about_colored_objects": (24, 36), "multistep_arithmetic_two": (0, 12), "snarks": (0, 12)}
"""Rows of a file."""
WITH_BLANK = ("snarks", "navigate")
"""Files whose direct answers begin with a blank where the prompt ends in none, as a base model's do."""
Rows = list[dict[str, Any]]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clients")]


def write(path: Path, rows: Rows) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def asked_last(prompt: str) -> str:
    """The question that a prompt ends in."""
    return max(prompt.rpartition("Question: "), prompt.rpartition("Q: "), key=lambda parts: len(parts[0]))[2]


def completing(says: Callable[[str], str]) -> Callable[[dict[str, Any]], Answer]:
    """An endpoint of completions that says ``says(prompt)`` up to the first stop."""

    def answer(asked: dict[str, Any]) -> Answer:
        text = says(asked["prompt"])
        for stop in asked.get("stop") or ():
            text = text.partition(stop)[0] if stop else text
        body = {"id": "c", "object": "text_completion", "created": 1, "model": "toy"}
        body |= {"choices": [{"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}]}
        body |= {"usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    return answer


def by_policy(url: str, model: str, tasks: list[Task], folder: Path) -> dict[str, Episode]:
    """Played by ours, by task."""
    policy = OpenAIPolicy(url, model)
    folder.mkdir()
    try:
        return {e.key.task: e for e in play(tasks, policy, folder, in_flight=8)}
    finally:
        policy.close()


def test_gsm8k_has_the_verdicts_of_both_its_tasks_and_rules_in_no_more_time(
    lm_eval: Callable[..., Found], data_dir: Path, tmp_path: Path
) -> None:
    rows = list(read_rows(data_dir / "bench/gsm8k/test.jsonl.gz"))[:200]
    labelled = {row["question"]: row for row in read_rows(data_dir / "bench/gsm8k/labelled_model_solutions.jsonl.gz")}
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    solutions = {row["question"]: labelled[row["question"]][models[i % 4]]["solution"] for i, row in enumerate(rows)}
    files = {"test": write(tmp_path / "data/gsm8k/test.jsonl", rows)}
    train = list(read_rows(data_dir / "bench/gsm8k/train_first100.jsonl.gz"))
    files["train"] = write(tmp_path / "data/gsm8k/train.jsonl", train)

    def says(prompt: str) -> str:
        steps, _, number = solutions[asked_last(prompt).rpartition("\nA")[0]].replace("\n", " ").rpartition("A: ")
        if "\n#### " in prompt:
            return f" {steps}\n#### {number}"
        return f" {steps}{'The' if '. The answer is ' in prompt else 'So the'} answer is {number}."

    with serving(completing(says)) as server:
        began = time.monotonic()
        tasks = {"worked": {"include": "gsm8k/gsm8k-cot.yaml", "files": files}}
        theirs = lm_eval(server.url, {**tasks, "plain": {"include": "gsm8k/gsm8k.yaml", "files": files}})
        halfway = time.monotonic()
        command = [sys.executable, str(ROOT / "jobs/agent_eval.py"), "--benchmark", "gsm8k", "--form", "base"]
        command += ["--policy", f"openai:{server.url}", "--policy-model", "toy"]
        command += ["--data", str(tmp_path / "data"), "--actors", "0"]
        command += ["--in-flight", "8", "--out", str(tmp_path / "ours")]
        env = {**os.environ, "LEMUR_HOME": str(tmp_path / "h")}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        ended = time.monotonic()
    lines = (tmp_path / "ours/episodes.jsonl").read_text().splitlines()
    ours = {e["key"]["task"]: e["score"] for e in map(json.loads, lines)}
    assert len(ours) == 200
    assert 0.2 < sum(ours.values()) / 200 < 0.8
    assert {one["filter"] for one in theirs["worked"]} == {"strict-match", "flexible-extract"}
    for items in theirs.values():
        assert len(items) == 400
        assert [one for one in items if one["right"] != ours[f"gsm8k/test/{one['number']}"]] == []
    assert ended - halfway <= halfway - began


def test_bbh_has_its_verdicts_but_for_a_stop_at_every_q_and_a_blank_before_the_answer(
    lm_eval: Callable[..., Found], data_dir: Path, tmp_path: Path
) -> None:
    said: dict[str, dict[str, str]] = {"cot": {}, "direct": {}}
    tasks, rows = {}, {}
    for file, (first, last) in BBH.items():
        rows[file] = list(read_rows(data_dir / f"bench/bbh/{file}.jsonl.gz"))[first:last]
        test = {"test": write(tmp_path / f"data/bbh/{file}.jsonl", rows[file])}
        prompts = tmp_path / f"data/cot-prompts/{file}.txt.gz"
        prompts.parent.mkdir(exist_ok=True)
        prompts.symlink_to(data_dir / f"bench/bbh_cot_prompts/{file}.txt.gz")
        for kind, folder in (("cot", "cot_fewshot"), ("direct", "fewshot")):
            outputs = {
                r["i"]: r["prediction"] for r in read_rows(data_dir / f"bench/bbh_outputs/{kind}/{file}.jsonl.gz")
            }
            said[kind] |= {row["input"]: outputs[row["i"]] for row in rows[file]}
            tasks[f"{kind}.{file}"] = {"include": f"bbh/{folder}/{file}.yaml", "files": test}
    after_blank = {row["input"] for file in WITH_BLANK for row in rows[file]}

    def says(prompt: str) -> str:
        question, _, cue = asked_last(prompt).rpartition("\nA:")
        reply = said["cot" if cue.strip() else "direct"][question].strip()
        return reply if cue or question not in after_blank else f" {reply}"

    with serving(completing(says)) as server:
        theirs = lm_eval(server.url, tasks)
        ours = {
            kind: by_policy(server.url, "toy", tasks_of(f"bbh/{kind}", tmp_path / "data", form="base"), tmp_path / kind)
            for kind in ("cot", "direct")
        }
    blank = {f"direct.{file}": theirs.pop(f"direct.{file}") for file in WITH_BLANK}
    parted, same = set(), 0
    for name, items in theirs.items():
        kind, _, file = name.partition(".")
        for one in items:
            episode = ours[kind][f"bbh/{file}/{rows[file][one['number']]['i']}"]
            same += one["right"] == episode.score
            if one["right"] != episode.score:
                parted.add((episode.key.task, episode.score, episode.reference))
    assert same > 120
    # lm-eval ends a reply at any Q: an answer (Q) is never read.
    assert parted == {(f"bbh/reasoning_about_colored_objects/{i}", 1.0, "(Q)") for i in (54, 64)}
    # It compares a direct answer with the blank that a base model begins it with, so that nothing is right.
    assert {one["right"] for items in blank.values() for one in items} == {0.0}
    assert sum(e.score or 0.0 for e in ours["direct"].values() if e.category in WITH_BLANK) > 8
    # Worked examples are the same texts: the prompts of cot are equal to the last letter, those of direct but for a
    # blank behind "A:".
    texts = {kind: {e.trajectory.opening[0].content for e in ours[kind].values()} for kind in ours}
    sent = {
        kind: {one["sent"][0][0] for n, items in (theirs | blank).items() if n.startswith(kind) for one in items}
        for kind in ours
    }
    assert sent["cot"] == texts["cot"]
    assert sent["direct"] == {text.removesuffix(" ") for text in texts["direct"]}


def test_humaneval_is_asked_alike_and_gives_the_same_programs(
    lm_eval: Callable[..., Found], data_dir: Path, tmp_path: Path
) -> None:
    rows = list(read_rows(data_dir / "bench/humaneval/HumanEval.jsonl.gz"))
    files = {"test": write(tmp_path / "data/humaneval/HumanEval.jsonl", rows)}
    after = (
        "\n\nprint(1)\n",
        "\n\n\ndef other():\n    pass\n",
        "\n# done\n",
        "\nif __name__ == '__main__':\n    pass",
        "",
    )
    bodies = {row["prompt"]: row["canonical_solution"] + after[i % 5] for i, row in enumerate(rows)}
    with serving(completing(bodies.__getitem__)) as server:
        task = {"include": "humaneval/humaneval.yaml", "files": files, "more": {"unsafe_code": False}}
        (items,) = lm_eval(server.url, {"programs": task}).values()
    tasks = tasks_of("humaneval", tmp_path / "data", form="base")
    assert len(items) == len(tasks) == 164
    for one, task in zip(sorted(items, key=lambda one: one["number"]), tasks, strict=True):
        prompt, how = one["sent"][0]
        assert prompt == task.options["prompt"]
        assert how["until"] == list(task.options["stop"])
        (reply,) = one["replies"][0]
        program = program_of(reply, prompt, task.options["reference"]["entry_point"])
        assert one["understood"] in ([program], [[program]])
