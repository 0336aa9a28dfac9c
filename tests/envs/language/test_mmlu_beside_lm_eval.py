"""MMLU as lm-eval plays it: the same prompts and token ids, the same log-likelihoods of letters, the same verdicts.

A tiny random model with a tokenizer of its own is asked by both, through one server that notes what it is sent.
"""

import contextlib
import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.rows import read_cells
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.loading import open_engine
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.special_tokens import BOS
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.weights.hf_config import tokenizer_files
from lemur_ray.weights.open_model import random_weights
from tests.agents.misbehaving import Answer, serving
from tests.envs.language.conftest import Found
from tests.envs.questions import play, tasks_of
from tests.serve.tiny import TINY

THEIR_HEADER = "The following are multiple choice questions (with answers) about {subject}."
SUBJECTS = ("abstract_algebra", "management", "college_mathematics")
ROWS = 5

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clients")]


def rows(file: Path) -> list[dict[str, Any]]:
    """Of a file of the authors, in the form of the Hub."""
    return [{"question": c[0], "choices": c[1:5], "answer": "ABCD".index(c[5])} for c in read_cells(file)]


def files_of(subject: str, data: Path, folder: Path) -> dict[str, str]:
    """The examples and the first rows of a subject for lm-eval, by split."""
    found = {}
    for split in ("dev", "test"):
        some = rows(data / f"bench/mmlu/{split}/{subject}_{split}.csv.gz")[:ROWS]
        path = folder / f"{subject}_{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
        found[split] = str(path)
    return found


def asked_of_lm_eval(data: Path, folder: Path) -> dict[str, Any]:
    more = {"num_fewshot": 5}
    return {
        subject: {
            "include": f"mmlu/default/mmlu_{subject}.yaml",
            "files": files_of(subject, data, folder),
            "more": more,
        }
        for subject in SUBJECTS
    }


def text_of(task: Task) -> str:
    """What a base model goes on with."""
    return str(task.options["shots"] + task.options["prompt"])


def asks_and_notes(url: str) -> Callable[[dict[str, Any]], Answer]:
    """An endpoint that hands on what it is asked."""

    def answer(asked: dict[str, Any]) -> Answer:
        sent = urllib.request.Request(
            f"{url}/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(sent) as got:
            return got.status, {"Content-Type": "application/json"}, got.read()

    return answer


def ids_of(url: str, text: str) -> tuple[int, ...]:
    """The token ids that the server makes of a prompt, with those that it puts before one."""
    body = json.dumps({"prompt": text, "add_special_tokens": True}).encode()
    sent = urllib.request.Request(f"{url.removesuffix('/v1')}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent) as got:
        return tuple(json.load(got)["tokens"])


def brought_tokenizer(texts: list[str], folder: Path) -> Tokenizer:
    """Of a folder that says, as those of Llama do, that a text begins with its begin token."""
    folder.mkdir()
    made = Tokenizer.train(texts, 600)
    for name, text in tokenizer_files(made).items():
        (folder / name).write_text(text)
    raw = json.loads((folder / TOKENIZER).read_text())
    begin = {"id": BOS, "ids": [made.bos_id], "tokens": [BOS]}
    single = [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    raw["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {BOS: begin},
    }
    (folder / TOKENIZER).write_text(json.dumps(raw))
    return tokenizer_in(folder)


@contextlib.contextmanager
def served(tokenizer: Tokenizer) -> Iterator[str]:
    config = replace(TINY, vocab_size=tokenizer.vocab_size, max_seq_len=2048)
    engine = open_engine(random_weights(config, 0), EngineOptions(max_slots=8), "tiny-0").start()
    with running(TextEngine(engine, tokenizer, "toy")) as url:
        yield url


def test_mmlu_is_sent_as_the_same_ids_and_every_letter_is_as_likely(
    lm_eval: Callable[..., Found], data_dir: Path, tmp_path: Path
) -> None:
    asked = asked_of_lm_eval(data_dir, tmp_path)
    tokenizer = brought_tokenizer([Path(one["files"]["dev"]).read_text() for one in asked.values()], tmp_path / "hf")
    ours = {t.id: t for t in tasks_of("mmlu", data_dir, form="base", header=THEIR_HEADER, most_chars=0)}
    ours = {name: ours[name] for name in (f"mmlu/{subject}/{n}" for subject in SUBJECTS for n in range(ROWS))}
    with served(tokenizer) as url, serving(asks_and_notes(url)) as server:
        theirs = lm_eval(server.url, asked, str(tmp_path / "hf"))
        by_them = {tuple(ids) for one in server.asked for ids in one["prompt"]}
        server.asked.clear()
        with contextlib.closing(OpenAIPolicy(server.url, "toy")) as policy:
            played = {e.key.task: e for e in play(ours.values(), policy, tmp_path, in_flight=8)}
        by_us = {ids_of(url, text) for one in server.asked for text in one["prompt"]}
    assert len(by_us) == 4 * len(ours) == 4 * ROWS * len(SUBJECTS)
    assert {ids[0] for ids in by_us} == {tokenizer.bos_id}
    assert by_them == by_us
    for subject, items in theirs.items():
        assert len(items) == ROWS
        for one in items:
            episode = played[f"mmlu/{subject}/{one['number']}"]
            assert [context for context, _ in one["sent"]] == [text_of(ours[episode.key.task])] * 4
            assert [choice for _, choice in one["sent"]] == ours[episode.key.task].options["choices"]
            likely = [likelihood for ((likelihood, _),) in one["replies"]]
            assert episode.trajectory.steps[0].choices == pytest.approx(likely, abs=1e-4)
            assert episode.score == one["right"]
    assert 0 < sum(episode.score or 0 for episode in played.values()) < len(played)
