"""A whole run on a Ray cluster: learner actor, a server of two replicas, pool of actors."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.improve.config import BadInput
from lemur_ray.improve.learner import Committed
from lemur_ray.improve.traces import load_traces
from lemur_ray.improve.training_rows import Rows
from lemur_ray.rollout.ledger import read_episodes
from tests.improve.capital_game import config_of


@pytest.mark.slow
def test_a_model_learns_a_game_on_a_cluster_and_its_server_ends_with_the_run(
    ray_local: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor that plays dies while the learner trains: another one plays every episode."""
    from ray import serve

    from lemur_ray.improve.on_ray.backend import OnRay, improve

    lines: list[str] = []
    playing: list[list[int]] = []
    train = OnRay.train

    def after_a_death(backend: OnRay, number: int, rows: Rows, order: np.ndarray, best: int) -> Committed:
        assert backend._pool is not None
        playing.append(backend._pool.pids)
        if number == 1:
            os.kill(playing[0][0], signal.SIGKILL)
        return train(backend, number, rows, order, best)

    monkeypatch.setattr(OnRay, "train", after_a_death)
    result = improve(config_of(start, tmp_path / "run", games=16, eval_games=8, actors=1, replicas=2), lines.append)
    assert [line.split(":")[0] for line in lines[:-1]] == ["round 1/2", "round 2/2"]
    assert (result["before"]["n"], result["after"]["n"], result["steps"]) == (8, 8, 8)
    assert result["after"]["solved"] > result["before"]["solved"]
    assert not [name for name in serve.status().applications if name.startswith("improve-")]
    assert [len(pids) for pids in playing] == [1, 1]
    assert playing[0] != playing[1]
    episodes = read_episodes(tmp_path / "run" / "rounds" / "2" / "episodes.jsonl")
    assert [one.outcome.scored for one in episodes] == [True] * 16


@pytest.mark.slow
def test_one_and_two_actors_draw_the_same_ids_with_the_same_bits(ray_local: str, start: Path, tmp_path: Path) -> None:
    from lemur_ray.improve.on_ray.backend import improve

    traces = []
    for actors in (1, 2):
        given = {"algorithm": "rloo", "rounds": 1, "games": 4, "samples": 3, "eval_games": 2}
        out = tmp_path / f"actors-{actors}" / "run"
        improve(config_of(start, out, actors=actors, **given))
        traces.append(load_traces(out / "traces" / "1.npz"))
    assert len(traces[0]) == 12
    assert traces[0] == traces[1], "ids and log-probabilities"


@pytest.mark.slow
def test_replicas_that_leave_no_cpu_to_play_are_refused_before_anything_starts(
    ray_local: str, start: Path, tmp_path: Path
) -> None:
    from lemur_ray.improve.on_ray.backend import improve

    with pytest.raises(BadInput, match=r"--replicas 4: .* take 4.1 CPU cores, the cluster has 4 CPU cores"):
        improve(config_of(start, tmp_path / "run", replicas=4))
    assert not (tmp_path / "run" / "checkpoints").exists()
