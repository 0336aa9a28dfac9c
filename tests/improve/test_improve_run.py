"""A whole run in this process: what it learns, what it writes, and how it stops."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.messages import ChatReply, ChatRequest, Policy, PolicyUnreachable
from lemur_ray.config import parse
from lemur_ray.host.exit_codes import ExitCode
from lemur_ray.improve import loop, outcome
from lemur_ray.improve.config import BadInput, ImproveConfig
from lemur_ray.improve.learner import Committed
from lemur_ray.improve.loop import EpisodesMissing, ImproveRun, RoundFailed, Served
from lemur_ray.improve.prepare import prepare
from lemur_ray.serve.config import EngineOptions
from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.weights.open_model import open_model
from tests.improve.capital_game import SEQ_LEN, config_of
from tests.improve.in_process import InProcess

OPTIONS = EngineOptions(max_slots=8, cache_bytes=2**24, prefill_tiles=1, compile_threads=1)


def improve(config: ImproveConfig, lines: list[str] | None = None) -> dict[str, Any]:
    prepared = prepare(config)
    if (finished := prepared.open_folder()) is not None:
        return {**finished, "already_finished": True}
    say = [].append if lines is None else lines.append
    with InProcess(prepared.learner, OPTIONS) as backend:
        run = ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, SEQ_LEN, say)
        return run.run()


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"algorithm": "teacher"}, {"control": True}], ids=["wins", "teacher", "control"])
def test_a_model_learns_a_game_from_what_was_good(start: Path, tmp_path: Path, given: dict[str, Any]) -> None:
    lines: list[str] = []
    config = config_of(start, tmp_path / "run", **given)
    result = improve(config, lines)
    assert result["before"]["solved"] <= 2
    assert result["after"]["solved"] >= 8
    assert (result["gained"], result["lost"]) == (result["after"]["solved"] - result["before"]["solved"], 0)
    assert result["p"] < 0.05
    assert result["best"] == {"round": 2, "checkpoint": result["checkpoint"], **result["after"]}
    solved = [result[when]["solved"] for when in ("before", "after")]
    last = f"held out {solved[0]} of 10 -> {solved[1]} of 10 (gained {result['gained']}, lost 0, p {result['p']:.2g})"
    assert [line.split(":")[0] for line in lines] == ["round 1/2", "round 2/2", last]
    assert "Games gained" in (tmp_path / "run" / "index.html").read_text()
    assert ("agrees with the teacher" in lines[0]) is (given == {"algorithm": "teacher"})
    assert [(one["round"], one["event"]) for one in records(tmp_path / "run")] == [
        (number, event) for number in (1, 2) for event in ("planned", "played", "trained")
    ]
    evaluated = (tmp_path / "run" / "heldout" / "2" / "episodes.jsonl").read_text()
    assert ('"instead"' in evaluated, '"weight"' in evaluated) == (False, False), "the teacher spoke in an evaluation"
    assert improve(config) == {**result, "already_finished": True}
    words = ["--config", str(tmp_path / "run" / "config.yaml")]
    assert parse(ImproveConfig, words, default=ImproveConfig(), prog="improve.py") == config
    with pytest.raises(BadInput, match=r"improve.games: 24 != 23"):
        improve(dataclasses.replace(config, games=23))


@pytest.mark.slow
def test_from_a_teacher_that_speaks_at_random_nothing_is_learned(start: Path, tmp_path: Path) -> None:
    given = {"benchmark": "tests.improve.capital_game:RANDOM_EXPERT", "algorithm": "teacher"}
    result = improve(config_of(start, tmp_path / "run", **given))
    assert (result["rounds"], result["stopped"]) == (2, "")
    assert result["after"]["solved"] <= 4, "a teacher that says A teaches at least 8 of 10"
    assert result["p"] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "tasks"),
    [
        ("tests.improve.capital_game:UNWINNABLE", {}),
        ("intercode/sql", {}),
        ("mint/math", {"train_tasks": "0:8", "eval_tasks": "8:12"}),
    ],
)
def test_a_model_that_wins_nothing_ends_the_run_in_one_sentence(
    start: Path, tmp_path: Path, data_dir: Path, benchmark: str, tasks: dict[str, str]
) -> None:
    lines: list[str] = []
    given = {"benchmark": benchmark, "data": str(data_dir), "games": 4, "eval_games": 4, **tasks}
    result = improve(config_of(start, tmp_path / "run", **given), lines)
    expected = (
        "round 1: none of 4 episodes was solved, so there is nothing to learn from and the run ends with the weights "
        "of round 0"
    )
    assert lines[0] == expected
    assert lines[1].startswith("held out 0 of 4 -> 0 of 4 (gained 0, lost 0, p 1): ")
    assert expected in (tmp_path / "run" / "index.html").read_text()
    assert (result["stopped"], result["rounds"], result["steps"]) == (expected, 0, 0)


@pytest.mark.slow
def test_a_run_shows_its_gain_over_a_finished_control_and_a_control_that_over_the_run(
    start: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    run = config_of(start, tmp_path / "run")
    own = improve(run)["after"]
    control = config_of(start, tmp_path / "control", control=True, compare_to=run.out)
    result = improve(control, lines)
    other = result["compared_to"]
    assert {name: other[name] for name in own} == own
    assert (other["run"], other["control"], other["paired"]) == (run.out, False, 10)
    assert other["gained"] - other["lost"] == result["after"]["solved"] - own["solved"]
    assert f"; over {run.out}, {own['solved']} of 10: gained {other['gained']}, lost {other['lost']}, p " in lines[-1]
    assert "games gained and lost over it" in (tmp_path / "control" / "index.html").read_text()
    assert improve(control) == {**result, "already_finished": True}
    with pytest.raises(BadInput, match="is finished without it: give it to a run that goes on"):
        improve(dataclasses.replace(run, compare_to=control.out))


class LosesMost(InProcess):
    """Every request for a reply fails but the first two of the process."""

    asked = 0

    def serve(self, commit: Committed) -> Served:
        version, factory = super().serve(commit)

        def losing() -> Policy:
            policy = factory()

            class Losing:
                name, wants_hints = policy.name, False

                def reply(self, request: ChatRequest) -> ChatReply:
                    LosesMost.asked += 1
                    if LosesMost.asked > 2:
                        raise PolicyUnreachable("the endpoint is away")
                    return policy.reply(request)

            return Losing()

        return Served(version, losing)


@pytest.mark.sweep  # a minute of waiting for the endpoint
def test_an_evaluation_whose_episodes_are_lost_is_no_result_and_is_played_again(start: Path, tmp_path: Path) -> None:
    config = config_of(start, tmp_path / "run", games=4, eval_games=4)
    prepared = prepare(config)
    prepared.open_folder()
    with (
        LosesMost(prepared.learner, OPTIONS) as backend,
        pytest.raises(EpisodesMissing, match="same command again") as end,
    ):
        ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, SEQ_LEN, print).run()
    assert end.value.exit_code == ExitCode.TRY_AGAIN
    assert not (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "run" / "rounds.jsonl").exists(), "a round was begun"
    assert improve(config)["before"]["missing"] == 0


@pytest.mark.slow
def test_the_best_round_is_kept_and_named_when_the_last_is_worse(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    config = config_of(start, tmp_path / "run", games=8, rounds=4, eval_games=4, eval_every=1)
    won = {0: 0.0, 1: 0.75, 2: 0.5, 3: 0.25, 4: 0.5}
    rates = [{"n": 4, "solved": int(4 * one), "rate": one, "missing": 0} for one in won.values()]
    number_of = {f"improve:run@{number * config.updates}": number for number in won}
    monkeypatch.setattr(outcome, "rate", lambda episodes: rates[number_of[episodes[0].key.policy]])
    monkeypatch.setattr(loop, "rate", outcome.rate)
    result = improve(config, lines)
    checkpoints = tmp_path / "run" / "checkpoints"
    assert sorted(int(one.name) for one in checkpoints.iterdir()) == [2, 6, 8]
    assert result["best"] == {"round": 1, "checkpoint": str(checkpoints / "2"), **rates[1]}
    assert result["checkpoint"] == str(checkpoints / "8")
    assert "; best after round 1: 3 of 4: " in lines[-1]
    assert open_model(result["best"]["checkpoint"]).version


@pytest.mark.slow
def test_weights_that_are_not_finite_are_neither_saved_nor_served(start: Path, tmp_path: Path) -> None:
    config = config_of(start, tmp_path / "run", eps=0.0, games=8, eval_games=4, control=True)
    with pytest.raises(TrainingStopped, match="round 1: its updates gave weights that are not finite"):
        improve(config)
    assert [one.name for one in (tmp_path / "run" / "checkpoints").iterdir()] == ["0"]
    assert [one["event"] for one in records(tmp_path / "run")] == ["planned", "played"]


@pytest.mark.slow
def test_a_ledger_that_was_changed_after_its_round_was_recorded_is_not_trained(start: Path, tmp_path: Path) -> None:
    config = config_of(start, tmp_path / "run", eps=0.0, games=8, eval_games=4, control=True)
    with pytest.raises(TrainingStopped):
        improve(config)
    ledger = tmp_path / "run" / "rounds" / "1" / "episodes.jsonl"
    ledger.write_text(ledger.read_text().replace('"reply":"A"', '"reply":"B"', 1))
    with pytest.raises(RoundFailed, match="round 1: its ledger gives training rows"):
        improve(config)
