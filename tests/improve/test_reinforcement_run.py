"""A whole run of policy gradients in this process: its records, its traces, and traces that are lost."""

import dataclasses
from pathlib import Path

import pytest

from lemur_ray.improve.traces import load_traces
from lemur_ray.train.run.folder import TrainingStopped
from tests.improve.capital_game import config_of
from tests.improve.test_improve_run import improve, records


@pytest.mark.slow
def test_a_run_of_policy_gradients_trains_what_it_drew_and_counts_its_groups(start: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    out = tmp_path / "run"
    result = improve(config_of(start, out, algorithm="rloo", games=6, samples=4, eval_games=4), lines)
    assert (result["rounds"], result["steps"], result["stopped"]) == (2, 8, "")
    assert [line.split(":")[0] for line in lines[:-1]] == ["round 1/2", "round 2/2"]
    assert "groups that differ" in (out / "index.html").read_text()
    for number in (1, 2):
        planned, played, trained = (one for one in records(out) if one["round"] == number)
        assert len(planned["tasks"]) == played["groups"] == 6
        assert played["mixed"] + played["flat"] == 6
        assert f"{played['mixed']} of 6 groups differ" in lines[number - 1]
        assert 4 < played["entropy"] < 6, "a random model draws from 260 ids"
        assert 0 < trained["grad_norm"] < 10
        assert trained["mismatch_mean"] <= 2e-6
        assert trained["mismatch_max"] <= 1e-4
        traces = load_traces(out / "traces" / f"{number}.npz")
        assert len(traces) == played["episodes"] == 24
        assert sum(map(len, traces.values())) == played["turns"]
        assert not (out / "rounds" / str(number) / "traces.jsonl").exists()
        assert "logprobs" not in (out / "rounds" / str(number) / "episodes.jsonl").read_text()


@pytest.mark.slow
def test_a_round_whose_traces_are_damaged_is_played_again_to_the_same_bytes(start: Path, tmp_path: Path) -> None:
    config = config_of(start, tmp_path / "run", eps=0.0, algorithm="grpo", games=6, samples=4, eval_games=2)
    with pytest.raises(TrainingStopped, match="round 1: its updates gave weights that are not finite"):
        improve(config)
    file, lines = tmp_path / "run" / "traces" / "1.npz", list[str]()
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(TrainingStopped, match="not finite"):
        improve(config, lines)
    assert "1.npz is damaged" in lines[0]
    assert lines[1] == "round 1: traces of some episodes are missing, so it is played again"
    assert file.read_bytes() == content


@pytest.mark.slow
def test_a_round_without_differences_ends_the_run_in_one_sentence(start: Path, tmp_path: Path) -> None:
    given = {"benchmark": "tests.improve.capital_game:UNWINNABLE", "games": 2, "samples": 2, "eval_games": 2}
    lines: list[str] = []
    result = improve(config_of(start, tmp_path / "run", algorithm="rloo", **given), lines)
    expected = (
        "round 1: none of 2 groups has episodes of different reward to learn from, so the run ends with the weights "
        "of round 0"
    )
    assert result["stopped"] == lines[-2] == expected
    assert lines[0] == "round 1: 100% of 2 groups have no differences to learn from"
    assert dataclasses.replace(config_of(start, tmp_path), algorithm="rloo").epochs == 8
