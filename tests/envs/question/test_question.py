"""One question, one reply: how it is put, what its grader is given, and what of it is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Outcome, Trajectory, join_opening, split_opening
from lemur_ray.benchmarks.question import Graded, QuestionDetails, question
from lemur_ray.rollout.ledger import Ledger, LedgerError, read_episodes
from tests.envs.questions import Says, play, verdicts

HERE = "tests.envs.question.test_question"


def same(reply: str, options: Mapping[str, Any]) -> Graded:
    return Graded(float(reply.strip() == options["reference"]), reply.strip() or None, "compared")


def broken(reply: str, options: Mapping[str, Any]) -> Graded:
    raise RuntimeError("this grader does not work")


def generous(reply: str, options: Mapping[str, Any]) -> Graded:
    return Graded(options["reference"], reply)


def sums(count: int, **more: Any) -> list[Any]:
    shots = "".join(f"Q: {n} + {n}\nA: {2 * n}\n\n" for n in range(200))
    return [
        question(
            "sums",
            f"sums/{n}",
            "sums",
            f"Q: {n} + 1\nA:",
            f"{HERE}:same",
            str(n + 1),
            QuestionDetails(shots=shots, **more),
        )
        for n in range(count)
    ]


def test_a_policy_is_asked_as_the_task_says_and_its_reply_ends_where_it_says(tmp_path: Path) -> None:
    policy = Says({"sums/0": " 1\nQ: 5 + 5", "sums/1": "3"})
    tasks = sums(2, raw=True, prefill=" It is", stop=("\n",), choices=("1", "2"))
    right, wrong = play(tasks, policy, tmp_path)
    request = policy.requests["sums/0"]
    assert request.raw
    assert request.choices == ("1", "2")
    assert request.sampling.stop == ("\n",)
    assert request.text.endswith("Q: 0 + 1\nA: It is")
    assert (right.outcome, right.score, right.trajectory.steps[0].action) == (Outcome.SOLVED, 1.0, "1")
    assert (wrong.outcome, wrong.score) == (Outcome.FAILED, 0.0)
    assert "compared" in wrong.trajectory.steps[0].observation


def test_worked_examples_may_be_turns(tmp_path: Path) -> None:
    said = [Message("user", "1+1"), Message("assistant", "2"), Message("user", "2+2")]
    policy = Says({"t": "4"})
    (episode,) = play([question("sums", "t", "sums", said, f"{HERE}:same", "4")], policy, tmp_path)
    assert policy.requests["t"].messages == tuple(said)
    assert episode.trajectory.opening == tuple(said)
    assert episode.outcome is Outcome.SOLVED


def test_an_empty_reply_is_no_answer(tmp_path: Path) -> None:
    (episode,) = play(sums(1), Says({"sums/0": "   "}), tmp_path)
    assert (episode.outcome, episode.trajectory.steps[0].valid) == (Outcome.FAILED, False)


def test_a_grader_that_raises_or_is_not_there_is_never_the_policys_fault(tmp_path: Path) -> None:
    tasks = [
        question("q", "raises", "q", "?", f"{HERE}:broken", ""),
        question("q", "gone", "q", "?", f"{HERE}:nobody", ""),
    ]
    raised, gone = play(tasks, Says({"raises": "x", "gone": "x"}), tmp_path)
    assert raised.outcome is gone.outcome is Outcome.ENV_ERROR
    assert "this grader does not work" in raised.detail
    assert "expected module:function" in gone.detail


def test_a_score_that_is_none_is_the_graders_fault_and_not_kept(tmp_path: Path) -> None:
    worth = [5.0, -3.0, 1.01, None, "1", 0.25]
    tasks = [question("q", f"{n}", "q", "?", f"{HERE}:generous", score) for n, score in enumerate(worth)]
    *wrong, right = play(tasks, Says({task.id: "x" for task in tasks}), tmp_path)
    assert {episode.outcome for episode in wrong} == {Outcome.ENV_ERROR}
    assert "generous gave the score 5.0: expected a number from 0 to 1" in wrong[0].detail
    assert (right.outcome, right.score) == (Outcome.FAILED, 0.25)


@pytest.mark.parametrize("options", [{}, {"prompt": "a", "messages": []}, {"messages": []}, {"prompt": 3}])
def test_a_question_without_one_text_to_ask_is_refused(options: dict[str, Any]) -> None:
    env = gymnasium.make("envs:lemur/Question-v0", disable_env_checker=True)
    with pytest.raises(ValueError, match=r"question|expected|conversation"):
        env.reset(options={"grade": f"{HERE}:same", "reference": "", **options})


def test_what_openings_have_in_common_is_written_once_and_read_back_whole(tmp_path: Path) -> None:
    tasks = sums(50)
    episodes = play(tasks, Says({task.id: "1" for task in tasks}), tmp_path)
    path = tmp_path / "episodes.jsonl"
    shots = len(tasks[0].options["shots"])
    assert path.stat().st_size < shots + 50 * 1200
    read = {episode.key.task: episode for episode in read_episodes(path)}
    assert read == {episode.key.task: episode for episode in episodes}
    assert all(len(episode.trajectory.opening[0].content) > shots for episode in read.values())
    with Ledger(path) as ledger:  # and so does whoever goes on with the file
        assert len(ledger) == 50


def test_a_record_whose_beginning_is_gone_is_said(tmp_path: Path) -> None:
    tasks = sums(2)
    play(tasks, Says({task.id: "1" for task in tasks}), tmp_path, in_flight=1)
    path = tmp_path / "episodes.jsonl"
    path.write_text(path.read_text().splitlines()[1] + "\n")
    with pytest.raises(LedgerError, match="begins as an earlier record's"):
        read_episodes(path)


@pytest.mark.parametrize("shared", [0, 1, 3, 4, 5, 6])
def test_an_opening_is_the_same_after_it_was_cut_anywhere(shared: int) -> None:
    opening = (Message("system", "abc"), Message("user", "d"), Message("assistant", "ef"))
    trajectory = Trajectory(opening, (), shared)
    head, rest = split_opening(trajectory)
    assert sum(len(message.content) for message in head) == shared
    assert join_opening(head, Trajectory(rest)) == trajectory


def test_the_expert_says_the_gold(tmp_path: Path) -> None:
    from tests.envs.questions import golds

    tasks = [
        question(
            "q",
            f"{n}",
            "q",
            "?",
            f"{HERE}:same",
            f"{n}",
            QuestionDetails(gold=gold),
        )
        for n, gold in enumerate("0x")
    ]
    assert golds(tasks, tmp_path) == {"0": True, "1": False}
    assert verdicts(play(tasks[:1], Says({"0": "0"}), tmp_path)) == {"0": True}


def test_likelihoods_of_choices_are_kept(tmp_path: Path) -> None:
    class Weighs(Says):
        def reply(self, request: Any) -> Any:
            from dataclasses import replace

            return replace(super().reply(request), choices=(-0.5, -2.0))

    (episode,) = play(sums(1, choices=("1", "2")), Weighs({"sums/0": "1"}), tmp_path)
    assert episode.trajectory.steps[0].choices == (-0.5, -2.0)
    assert json.loads((tmp_path / "episodes.jsonl").read_text())["trajectory"]["steps"][0]["choices"] == [-0.5, -2.0]
    assert read_episodes(tmp_path / "episodes.jsonl") == [episode]
