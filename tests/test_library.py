"""``import lemur_ray``: light, and enough to evaluate a Python function, an object or a model of this process."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lemur_ray as lr
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused
from lemur_ray.host import user_modules

ROOT = Path(__file__).resolve().parents[1]


def looks(messages: Sequence[dict[str, Any]]) -> str:
    assert messages[-1]["role"] == "user"
    return "look"


class Countdown:
    """A policy that is an object; its name goes into keys and reports."""

    name = "countdown"

    def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply(f"go to shelf {len(request.messages)}")


def test_importing_is_light_and_every_public_name_is_there() -> None:
    code = (
        "import sys, lemur_ray as lr; print([n for n in ('jax', 'ray', 'numpy', 'tyro') if n in sys.modules]);"
        "[getattr(lr, name) for name in lr.__all__]; print(set(lr.__all__) <= set(dir(lr)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["[]", "True"]
    with pytest.raises(AttributeError, match="has no attribute 'evalute'"):
        lr.evalute  # noqa: B018


def test_a_function_is_evaluated_and_its_episodes_become_rows_and_a_data_set(lemur_home: Path) -> None:
    result = lr.evaluate(looks, limit=3, out="one")
    assert (result.headline["n"], result.headline["solved"]) == (3, 0)
    assert result.page.is_file()
    frame = result.to_pandas()
    assert frame["policy"].nunique() == 1
    assert re.fullmatch(r"function:looks-[0-9a-f]{8}", frame["policy"][0])
    assert list(frame["outcome"].unique()) == ["turn_limit"]
    dataset = result.to_dataset()
    assert dataset[0]["messages"][-1]["role"] == "user"
    assert dataset[0]["messages"][-2] == {"role": "assistant", "content": "look"}
    again = lr.evaluate(looks, limit=3, out="one")
    assert again.rows() == result.rows(), "the same call resumes"
    stored = lr.load_evaluation(result.folder)
    assert stored.headline["interval_95"] == result.headline["interval_95"]
    assert "interval" in stored._repr_html_() or "success_rate" in stored._repr_html_()


def test_an_object_and_a_local_function_are_policies_too(lemur_home: Path) -> None:
    assert lr.evaluate(Countdown(), limit=1, out="two").rows()[0]["policy"] == "function:countdown"
    local = lambda messages: "inventory"  # noqa: E731
    assert lr.evaluate(local, limit=1, out="three").rows()[0]["turns"] == 50
    other = lr.evaluate(lambda messages: "look", limit=1, out="three")
    assert {step.reply for step in other.episodes()[-1].trajectory.steps} == {"look"}, "another function plays anew"

    class Nameless:
        def reply(self, request: ChatRequest) -> ChatReply:
            return ChatReply("look")

    with pytest.raises(Exception, match="needs a name"):
        lr.evaluate(Nameless(), limit=1, out="three")


def test_results_in_a_bucket_and_functions_of_a_users_file(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = lr.evaluate(looks, limit=1, out="memory://library/one")
    assert result.headline["out"] == "memory://library/one"
    assert lr.load_evaluation("memory://library/one").rows() == result.rows()
    (tmp_path / "mine_of_the_library.py").write_text("def f(messages):\n    return 'look'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the folder is added to both
    monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"])
    assert lr.evaluate("function:mine_of_the_library:f", limit=1, out="two").rows()[0]["turns"] == 50


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda messages: None, "returned NoneType: expected the text of the reply"),
        (lambda messages: messages["x"], r"raised TypeError at test_library.py:\d+: list indices"),
    ],
)
def test_a_function_that_fails_ends_the_run_with_one_sentence(function: Any, expected: str, lemur_home: Path) -> None:
    with pytest.raises(EndpointRefused, match=expected):
        lr.evaluate(function, limit=2, out="four")


def test_what_evaluate_does_not_know_is_named(lemur_home: Path) -> None:
    with pytest.raises(ValueError, match="alfworld/text has no option epoch"):
        lr.evaluate(looks, epoch=2)
    with pytest.raises(Exception, match="--policy function:nowhere:f: expected function:MODULE:NAME"):
        lr.evaluate("function:nowhere:f", limit=1)
    assert "alfworld/text" in lr.list_benchmarks()


@pytest.mark.slow
def test_a_model_of_this_process_chats_and_plays(lemur_home: Path) -> None:
    model = lr.load_model("random:nano", max_slots=2)
    try:
        reply = model.chat("hello", max_tokens=4)
        assert reply == model.chat([{"role": "user", "content": "hello"}], max_tokens=4)
        result = lr.evaluate(model, limit=1, prompt="brief", max_tokens=4, episode_tokens=1500, out="five")
        name = result.rows()[0]["policy"]
        assert name == f"function:random-nano@{model.engine.engine.version}", "other weights are another policy"
        lr.evaluate(looks, limit=1, out="five")
        with pytest.raises(ValueError, match=r"five holds 2 evaluations .*choose one with policy="):
            lr.load_evaluation("five")
        assert lr.load_evaluation("five", policy=name).rows() == result.rows()[:1]
        assert result.rows()[0]["completion_tokens"] > 0
    finally:
        model.close()


@pytest.mark.slow
def test_a_function_of_a_script_reaches_actors_and_the_examples_run(ray_local: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import lemur_ray as lr\ndef f(messages):\n    return 'look'\n"
        "print(lr.evaluate(f, limit=2, actors=1, out='x').rows()[1]['outcome'])\n"
    )
    environment = os.environ | {"LEMUR_HOME": str(tmp_path), "RAY_ADDRESS": ray_local, "PYTHONPATH": str(ROOT)}
    for path in (
        script,
        *(ROOT / "examples" / f"{name}.py" for name in ("function_policy", "conversations_for_tuning")),
    ):
        done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        print(done.stdout)
    assert "num_rows: 8" in done.stdout


def test_an_edited_benchmark_is_played_anew_and_old_code_is_named(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, name = tmp_path / "edited_benchmark.py", "edited_benchmark:DOUBLES"
    text = (ROOT / "examples" / "own_benchmark.py").read_text()
    monkeypatch.syspath_prepend(str(tmp_path))

    def play() -> tuple[int, int, str]:
        result = lr.evaluate("expert", name, limit=2, out="edited")
        return result.headline["solved"], len(lr.Evaluation(result.folder, {}).rows()), capsys.readouterr().err

    file.write_text(text)
    assert play()[:2] == (2, 2)
    file.write_text(f"# a comment\n{text}")
    assert play()[:2] == (2, 2), "comments are no code"
    edited = text.replace("2 * n", "3 * n")
    assert edited != text
    file.write_text(edited)
    old = play()
    assert old[:2] == (2, 2)
    assert "edited_benchmark was edited after this process had imported it" in old[2]
    importlib.reload(sys.modules["edited_benchmark"])
    solved, episodes, said = play()
    assert (solved, episodes) == (2, 4), "every task is played again, and the earlier episodes stay"
    assert f"{name}: its code is not that of the earlier episodes" in said
    assert "its code is not" not in play()[2]


def test_a_ledger_of_a_release_with_other_digests_of_code_is_named_as_the_reason(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "benchmark_of_before:DOUBLES"
    (tmp_path / "benchmark_of_before.py").write_text((ROOT / "examples" / "own_benchmark.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    with monkeypatch.context() as before:
        before.setattr(user_modules, "DIGEST_DIGITS", 8)
        lr.evaluate("expert", name, limit=2, out="before")
    importlib.reload(sys.modules["benchmark_of_before"])
    capsys.readouterr()
    result = lr.evaluate("expert", name, limit=2, out="before")
    assert "an earlier release, whose digests of code depended on the version of Python" in capsys.readouterr().err
    assert len(lr.Evaluation(result.folder, {}).rows()) == 4
