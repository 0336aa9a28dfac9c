"""The protocol of an episode, with a Python tool that only says what it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from envs.mint import mint_env
from envs.mint.mint_env import MintEnv
from envs.mint.python_tool import ToolRefused
from envs.mint.reply import lenient, tags
from envs.mint.teacher import Situation
from envs.mint.tools import Tool
from envs.mint.wording import own_wording
from lemur_ray.grading.python_tests import TestRun

TASK: dict[str, Any] = {"subset": "gsm8k", "id": "0", "prompt": "How many?", "reference": "6", "example": "Task:\nx"}


class Echo:
    """A tool whose output is its input; ``CALL q`` asks the search tool."""

    def __init__(self, tools: Sequence[Tool], call: Callable[[str, list[str]], str], *, backend: str) -> None:
        self._call = call

    def run(self, code: str) -> str:
        return self._call("wikipedia_search", [code[5:]]) if code.startswith("CALL ") else f"ran {code}"

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mint_env, "SandboxedPython", Echo)


def begin(**options: Any) -> tuple[MintEnv, str]:
    env = MintEnv()
    first, _ = env.reset(seed=0, options={**TASK, **options})
    return env, first


def test_a_right_answer_ends_the_episode_as_solved() -> None:
    env, first = begin()
    assert first.endswith("Task:\nHow many?\n")
    message, reward, terminated, truncated, info = env.step("<thought>t</thought><solution> 6 </solution>")
    assert (reward, terminated, truncated, info["outcome"]) == (1.0, True, False, "solved")
    assert info["scores"] == {"mint-2023": 1.0, "strict": 1.0}
    assert info["action"] == "<solution>6</solution>"
    assert "4 steps left and 1 chances" in message


def test_two_wrong_proposals_end_it_as_failed() -> None:
    env, _ = begin()
    message, _, terminated, _, _ = env.step("<solution>5</solution>")
    assert message == (
        "Observation:\nYour answer is wrong.\nYou have 4 steps left and 1 chances to propose solution left.\n"
    )
    assert not terminated
    _, reward, terminated, truncated, info = env.step("<solution>")
    assert (reward, terminated, truncated, info["outcome"], info["valid"]) == (0.0, True, False, "failed", False)


def test_five_turns_are_the_limit_and_the_last_one_is_announced() -> None:
    env, _ = begin()
    replies = [
        "<execute>a</execute> and <execute> b</execute>",
        "",
        "chat",
        "<execute></execute>",
        "<execute>c</execute>",
    ]
    answers = [env.step(reply) for reply in replies]
    texts = [answer[0] for answer in answers]
    assert texts[0].startswith("Observation:\nran a\nb\nYou have 4 steps left")
    not_understood = own_wording("gsm8k").not_understood
    assert all(text.startswith(f"Observation:\n{not_understood}\nYou have") for text in texts[1:4])
    assert [answer[4]["valid"] for answer in answers] == [True, False, False, False, True]
    assert ["You should take the last step" in text for text in texts] == [False, False, False, True, True]
    assert answers[-1][3]
    assert answers[-1][4]["outcome"] == "turn_limit"


def test_both_graders_speak_whoever_decides() -> None:
    env, _ = begin(grader="mint-2023")
    _, _, terminated, _, info = env.step("<solution>16 dollars</solution>")
    assert terminated
    assert info["scores"] == {"mint-2023": 1.0, "strict": 0.0}
    env, _ = begin(grader="strict")
    _, _, terminated, _, info = env.step("<solution>16 dollars</solution>")
    assert not terminated
    assert info["scores"] == {"mint-2023": 1.0, "strict": 0.0}


def test_programs_are_graded_by_running_their_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    from envs.mint import judges

    asked = []

    def fake(backend: str, solution: str, tests: str, setup: str = "") -> TestRun:
        asked.append((backend, solution, tests))
        return TestRun(passed=True)

    monkeypatch.setattr(judges, "_in_fresh_sandboxes", fake)
    env, _ = begin(subset="mbpp", reference="assert f() == 1", backend="docker", tools="skip")
    _, _, terminated, _, info = env.step("<solution>\ndef f(): return 1\n</solution>")
    assert asked == [("docker", "def f(): return 1", "assert f() == 1")]
    assert terminated
    assert info["scores"] == {"mint-2023": 1.0, "strict": 1.0}


def test_feedback_follows_every_turn_that_does_not_end_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Situation] = []

    class Teacher:
        def feedback(self, situation: Situation) -> str:
            seen.append(situation)
            return "This is BAD." if situation.turn == 0 else ""

    monkeypatch.setattr(mint_env, "teacher_of", lambda *options: Teacher())
    env, _ = begin(feedback="textual", teacher="fake")
    assert env.step("<solution>5</solution>")[0].endswith("\n\nExpert feedback:\nThis is BAD.\n")
    assert "Expert feedback" not in env.step("x")[0]
    assert "Expert feedback" not in env.step("<solution>6</solution>")[0]
    assert [situation.turn for situation in seen] == [0, 1]
    assert [message.role for message in seen[1].dialogue] == ["assistant", "user", "assistant"]


def test_a_search_without_a_source_is_an_error_of_the_models_code_and_no_way_out_of_the_episode() -> None:
    env, _ = begin()
    with pytest.raises(ToolRefused, match="no search is available"):  # the tool shows it as the cell's traceback
        env.unwrapped._call("wikipedia_search", ["lemur"])


def test_code_is_not_run_where_that_is_asked_for() -> None:
    env, _ = begin(tools="skip")
    assert "Not executed" in env.step("<execute>x</execute>")[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subset": "gsm9k"}, "gsm8k"),
        ({"grader": "kind"}, "mint-2023"),
        ({"reference": None}, "reference"),
        ({"prompt": 3}, "prompt"),
        ({"max_propose": 0}, "max_propose"),
        ({"feedback": "textual", "teacher": "me"}, "openai:URL"),
        ({"wikipedia": "web"}, "live"),
        ({"subset": "alfworld", "games": "/nowhere.tar.gz"}, "nowhere"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], expected: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=expected):
        begin(**options)


def test_it_is_a_gymnasium_environment() -> None:
    class WithTask(MintEnv):
        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            return super().reset(seed=seed, options=options or TASK)

    check_env(WithTask(), skip_render_check=True)
    assert isinstance(gymnasium.make("envs:lemur/MINT-v0", disable_env_checker=True).unwrapped, MintEnv)


def test_replies_are_read_by_named_strategies() -> None:
    assert tags("<execute>a</execute><solution>").kind == "propose"
    assert tags("```python\nx\n```").kind == "nothing"
    assert lenient("```python\nx\n```\ntext\n```\ny\n```").content == "x\ny"
    assert lenient("```bash\nls\n```\ntext\n```py \ny\n```").content == "y"
    assert lenient("[PYTHON]\nx = 1\n[/PYTHON]").content == "x = 1"
    assert lenient("<execute>a</execute>```\nb\n```").content == "a"
    assert lenient("no code").kind == "nothing"


def test_a_model_is_shown_its_replies_in_mints_frame_and_no_empty_ones() -> None:
    from lemur_ray.agents.trajectory import Step, Trajectory

    env = MintEnv()
    _, info = env.reset(options=dict(TASK))
    steps = tuple(Step(reply, None, "o", 0.0, False) for reply in ("a", "", " Assistant:\nb"))
    shown = Trajectory(steps=steps, reply_prefix=info["reply_prefix"]).shown(3)
    assert [(m.role, m.content) for m in shown] == [
        *(("assistant", "Assistant:\na\n"), ("user", "o"), ("user", "o")),
        *(("assistant", " Assistant:\nb\n"), ("user", "o")),
    ]
