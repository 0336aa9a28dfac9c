"""Cut replies: models that reason before they answer, behind an endpoint that counts and limits tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatRequest, Cut, Message, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.rollout.ledger import read_episodes
from tests.agents.misbehaving import Answer, Server, ask, completion, refusal, serving, serving_in_turn
from tests.e2e.conftest import Run

TASKS = 22
ENDLESS = 10**6


def thinker(thoughts: int, text: str, context: int = 10**9, counts: bool = True) -> Callable[[dict[str, Any]], Answer]:
    """Answers of a model that spends ``thoughts`` tokens on reasoning; a token of the text is a word."""

    def answer(asked: dict[str, Any]) -> Answer:
        if asked["max_tokens"] > context:
            return refusal(400, "context_length_exceeded")
        words = text.split(" ")
        spent = min(thoughts, asked["max_tokens"])
        left = words[: asked["max_tokens"] - spent]
        usage: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": spent + len(left)}
        usage |= {"completion_tokens_details": {"reasoning_tokens": spent}} if counts else {}
        finish = "stop" if len(left) == len(words) else "length"
        message = {"role": "assistant", "content": " ".join(left) or None, "reasoning_content": "hm " * min(spent, 9)}
        return completion(choices=[{"index": 0, "finish_reason": finish, "message": message}], usage=usage)

    return answer


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, rows in (("dev", 1), ("test", TASKS)):
        (tmp_path / "data/mmlu" / name).mkdir(parents=True)
        lines = [f"Which is number {row}?,one,two,three,four,B\n" for row in range(rows)]
        (tmp_path / f"data/mmlu/{name}/astronomy_{name}.csv").write_text("".join(lines))
    return tmp_path / "data"


def played(run: Run, server: Server, data: Path, out: Path, *more: str) -> tuple[dict[str, Any], str]:
    argv = ("--benchmark", "mmlu", "--policy", f"openai:{server.url}", "--data", str(data), "--out", str(out), *more)
    code, lines, err = run(*argv)
    assert code == 0
    return json.loads(lines[-1]), err


def test_a_model_that_thinks_for_2000_tokens_is_scored_and_nothing_is_cut(run: Run, data: Path, tmp_path: Path) -> None:
    with serving(thinker(2000, "B")) as server:
        printed, err = played(run, server, data, tmp_path / "out")
    assert (printed["solved"], printed["success_rate"]) == (TASKS, 1.0)
    assert printed["cut_replies"] == {"count": 0, "n": TASKS, "share": 0.0, "kinds": {}}
    assert "are cut" not in err
    assert f"cut replies 0/{TASKS} = 0.0 %" in (tmp_path / "out/index.html").read_text()
    limits = [asked["max_tokens"] for asked in server.asked]
    assert set(limits) == {16, 16 + 16_384}, "the larger limit after the first replies"


def test_a_model_that_never_ends_its_thoughts_is_warned_of(run: Run, data: Path, tmp_path: Path) -> None:
    with serving(thinker(ENDLESS, "B")) as server:
        printed, err = played(run, server, data, tmp_path / "out")
    assert printed["cut_replies"] == {"count": TASKS, "n": TASKS, "share": 1.0, "kinds": {"thoughts": TASKS}}
    during = next(line for line in err.splitlines() if "of 20 tasks are cut" in line)
    assert "20 of 20 replies" in during
    assert "--thinking-tokens" in during
    assert f"cut replies {TASKS}/{TASKS} = 100.0 %" in (tmp_path / "out/index.html").read_text()
    overall = json.loads((tmp_path / "out/report.json").read_text())["runs"][0]["overall"]
    assert overall["cut"]["by_turn"] == {"1": TASKS}
    assert set(overall["cut"]["by_task"].values()) == {1}
    assert {step.cut for e in read_episodes(tmp_path / "out/episodes.jsonl") for step in e.trajectory.steps} == {
        Cut.THOUGHTS
    }


def test_calls_that_an_endpoint_leaves_in_the_text_are_warned_of(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bfcl/data/possible_answer").mkdir(parents=True)
    parameters = {"type": "dict", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    function = {"name": "f", "description": "Adds 1.", "parameters": parameters}
    for folder, more in (("data", {"question": [[{"role": "user", "content": "f of 1"}]], "function": [function]}),
                         ("data/possible_answer", {"ground_truth": [{"f": {"n": [1]}}]})):  # fmt: skip
        rows = [json.dumps({"id": f"simple_python_{row}", **more}) for row in range(TASKS)]
        (tmp_path / f"bfcl/{folder}/BFCL_v4_simple_python.json").write_text("\n".join(rows))
    call = '<tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>'
    argv = ("--benchmark", "bfcl", "--categories", "simple_python", "--data", str(tmp_path))
    with serving(lambda asked: completion(call)) as server:
        code, lines, err = run(*argv, "--policy", f"openai:{server.url}", "--out", str(tmp_path / "out"))
        _, in_words, _ = run(
            *argv, "--tools", "words", "--policy", f"openai:{server.url}", "--out", str(tmp_path / "w")
        )
    assert code == 0
    printed = json.loads(lines[-1])
    assert (printed["solved"], printed["cut_replies"]["calls_in_text"]) == (0, TASKS)
    during = next(line for line in err.splitlines() if line.startswith("bfcl: 20 of 20 replies"))
    assert "--tools words" in during
    assert f"{TASKS} of {TASKS} replies: a tool call is in the text" in (tmp_path / "out/index.html").read_text()
    assert json.loads(in_words[-1])["solved"] == TASKS
    assert "calls_in_text" not in json.loads(in_words[-1])["cut_replies"]


def test_a_long_answer_names_the_flag_that_gives_it_room(run: Run, data: Path, tmp_path: Path) -> None:
    with serving(thinker(0, " ".join(["word"] * 40))) as server:
        printed, err = played(run, server, data, tmp_path / "out", "--limit", "3")
        assert printed["cut_replies"]["kinds"] == {"length": 3}
        assert "--reply-tokens raises it" in err
        printed, _ = played(run, server, data, tmp_path / "more", "--limit", "3", "--reply-tokens", "64")
    assert printed["cut_replies"]["count"] == 0
    assert {asked["max_tokens"] for asked in server.asked} == {16, 64}


def asking(limit: int, *stops: str) -> ChatRequest:
    return ChatRequest((Message("user", "Go."),), Sampling(max_tokens=limit, stop=stops), "e1")


def test_a_limit_counts_the_reply_and_not_the_reasoning_before_it() -> None:
    with serving(thinker(30, "one two three four five six")) as server:
        whole = ask(server, asking(6), thinking_tokens=100)
        short = ask(server, asking(3), thinking_tokens=100)
    assert (whole.text, whole.cut) == ("one two three four five six", None)
    assert short.text == "one two three"[: len(whole.text) // 2]
    assert short.cut is Cut.LENGTH
    with serving(thinker(30, "one two three four five six", counts=False)) as server:
        assert ask(server, asking(3), thinking_tokens=100).cut is None, "what is not counted apart is not cut"


def test_reasoning_gets_the_room_that_the_context_has() -> None:
    with serving(thinker(900, "B", context=5000)) as server:
        reply = ask(server, asking(16))
    assert [asked["max_tokens"] - 16 for asked in server.asked] == [0, 16_384, 8192, 4096]
    assert (reply.text, reply.cut) == ("B", None)
    with serving(thinker(900, "B", context=20)) as server:
        reply = ask(server, asking(16))
    assert (reply.text, reply.cut) == ("", Cut.THOUGHTS)
    assert server.asked[-1]["max_tokens"] == 16


def test_a_reply_that_a_stop_string_ends_is_complete() -> None:
    with serving(thinker(0, "one two\nthree " + "four " * 40)) as server:
        reply = ask(server, asking(16, "\n"))
    assert "stop" not in server.asked[0]
    assert (reply.text, reply.finish_reason, reply.cut) == ("one two", "stop", None)


def test_a_reply_that_ended_at_a_stop_string_is_not_cut_once_more() -> None:
    said = "w" * 200 + "\n" + " on" * 300
    with serving(thinker(30, said)) as server:
        reply = ask(server, asking(100, "\n"), thinking_tokens=1000)
    assert reply.usage.completion_tokens - reply.usage.reasoning_tokens > 100
    assert (reply.text, reply.finish_reason, reply.cut) == ("w" * 200, "stop", None)


def spent(prompt: int, completion: int, reasoning: int = 0) -> dict[str, Any]:
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else {}
    return {"prompt_tokens": prompt, "completion_tokens": completion, **details}


def test_one_blank_reply_of_a_model_that_does_not_reason_changes_no_later_limit() -> None:
    long = " ".join(["word"] * 200)
    answers = [completion("\n\n", "length", usage=spent(5, 100)), completion(long, usage=spent(5, 200))]
    answers += [completion("word", usage=spent(5, 1))] * 2
    with serving_in_turn(*answers) as server:
        policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions())
        first, *_ = [policy.reply(asking(100)) for _ in range(3)]
        policy.close()
    assert [asked["max_tokens"] for asked in server.asked] == [100, 100 + 16_384, 100, 100]
    assert (first.text, first.cut) == (long[: len(long) // 2], Cut.LENGTH)


def test_a_short_text_after_hidden_reasoning_is_whole() -> None:
    answers = completion("", "length", usage=spent(5, 16)), completion("B", usage=spent(5, 900))
    with serving_in_turn(*answers) as server:
        reply = ask(server, asking(16))
    assert (reply.text, reply.cut) == ("B", None)


def test_the_tokens_of_a_repeated_request_are_counted_too(run: Run, data: Path, tmp_path: Path) -> None:
    with serving(thinker(900, "B")) as server:
        reply = ask(server, asking(16))
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7 + 7, 16 + 901)
        assert reply.usage.reasoning_tokens == 16 + 900
        played(run, server, data, tmp_path / "out", "--limit", "1")
    overall = json.loads((tmp_path / "out/report.json").read_text())["runs"][0]["overall"]
    assert (overall["prompt_tokens"], overall["completion_tokens"]) == (7 + 7, 16 + 901)


def test_the_empty_replies_of_a_policy_without_a_model_are_not_cut(run: Run, data: Path, tmp_path: Path) -> None:
    argv = ("--benchmark", "mmlu", "--policy", "noop", "--data", str(data), "--out", str(tmp_path / "out"))
    code, lines, err = run(*argv)
    assert code == 0
    assert "are cut" not in err
    assert "cut_replies" not in json.loads(lines[-1])
    assert "cut replies" not in (tmp_path / "out/index.html").read_text()
    assert json.loads((tmp_path / "out/report.json").read_text())["runs"][0]["overall"]["cut"]["count"] == 0
