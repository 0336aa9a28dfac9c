"""A run whose evaluations or checkpoints were lost; its weights are scripted, its checkpoints files without arrays."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lemur_ray.agents.messages import ChatReply, ChatRequest, Policy
from lemur_ray.host.exit_codes import ExitCode
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.improve.learner import Committed
from lemur_ray.improve.loop import EpisodesMissing, ImproveRun, RoundFailed, Served
from lemur_ray.improve.prepare import prepare
from lemur_ray.improve.training_rows import Rows
from lemur_ray.rollout.evaluation import EvaluationPlan
from lemur_ray.rollout.threads import Pool, ThreadPool
from lemur_ray.weights.checkpoints import newest_commit
from tests.improve.capital_game import SEQ_LEN, config_of


class Scripted:
    """A backend whose weights of step ``n`` win ``wins[n]`` of four games; -1: every request for a reply fails."""

    def __init__(self, out: Path, wins: Mapping[int, int]) -> None:
        self.folder, self.wins, self.kept = out / "checkpoints", wins, list[int]()

    def open(self) -> Committed:
        newest = newest_commit(str(self.folder))
        return self.commit(newest.step if newest else 0)

    def train(self, number: int, rows: Rows, order: np.ndarray, best: int) -> Committed:
        self.kept.append(best)
        return self.commit(number * len(order))

    def commit(self, step: int) -> Committed:
        folder = self.folder / str(step)
        for name in ("plan/metadata", "state/_METADATA", "state/manifest.ocdbt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps({"rows": step}))
        return Committed(step, str(folder), {"loss": 1.0, "grad_norm": 1.0, "learn_s": 0.0})

    def serve(self, commit: Committed) -> Served:
        return Served(str(commit.step), lambda: Wins(self.wins[commit.step], str(commit.step)))

    def pool(self, plan: EvaluationPlan, policy: Callable[[], Policy]) -> AbstractContextManager[Pool]:
        return closing(ThreadPool(policy(), plan.config.in_flight))


class Wins:
    name, wants_hints = "scripted", False

    def __init__(self, wins: int, version: str) -> None:
        self.wins, self.version = wins, version

    def reply(self, request: ChatRequest) -> ChatReply:
        if self.wins < 0:
            raise RuntimeError("lost")
        game = re.search(r"letter (\d+)", " ".join(message.content for message in request.messages))
        assert game is not None
        return ChatReply("A" if int(game[1]) % 4 < self.wins else "a", version=self.version)


@pytest.fixture
def config(start: Path, tmp_path: Path) -> ImproveConfig:
    return config_of(start, tmp_path / "run", games=4, eval_games=4, rounds=4, eval_every=1)


def improve(config: ImproveConfig, wins: list[int]) -> tuple[dict[str, Any], list[str], list[int]]:
    """(result, lines, steps that each training was to keep) of a run whose rounds' weights win so many games."""
    prepared, lines = prepare(config), list[str]()
    prepared.open_folder()
    backend = Scripted(prepared.out, {number * config.updates: count for number, count in enumerate(wins)})
    run = ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, SEQ_LEN, lines.append)
    return run.run(), lines, backend.kept


def test_a_best_round_whose_checkpoint_is_lost_is_neither_named_nor_promised(config: ImproveConfig) -> None:
    out, wins = Path(config.out), [1, 3, 2, 1, 1]
    result, lines, kept = improve(config, wins)
    assert (result["best"]["round"], result["best"]["solved"], kept) == (1, 3, [0, 2, 2, 2])
    assert "; best after round 1: 3 of 4: " in lines[-1]
    assert "best held out, after round 1; its checkpoint is kept" in (out / "index.html").read_text()
    for step, best in (("2", 2), ("4", 4)):  # round 2 is the next best one, then the last of those that won one game
        shutil.rmtree(out / "checkpoints" / step)
        result, lines, _ = improve(config, wins)
        assert result["best"]["round"] == best
        assert Path(result["best"]["checkpoint"]).is_dir()
    assert "; best after" not in lines[-1]
    assert "best held out" not in (out / "index.html").read_text()


def test_an_evaluation_whose_episodes_are_lost_ends_the_command_before_the_next_round(config: ImproveConfig) -> None:
    for wins, number in (([-1, 3, 2, 1, 1], 0), ([1, 3, -1, 1, 1], 2)):
        with pytest.raises(EpisodesMissing, match=f"4 of 4 held-out episodes of round {number} .* plays them") as end:
            improve(config, wins)
        assert end.value.exit_code is ExitCode.TRY_AGAIN
        records = (Path(config.out) / "rounds.jsonl").read_text() if number else ""
        assert records.count("planned") == number
    result, _, _ = improve(config, [1, 3, 2, 1, 1])
    assert (result["before"]["missing"], result["before"]["solved"], result["best"]["round"]) == (0, 1, 1)


def test_the_start_s_episodes_are_not_promised_again_once_its_weights_are_gone(config: ImproveConfig) -> None:
    improve(config, [1, 3, 2, 1, 1])
    shutil.rmtree(Path(config.out) / "heldout" / "0")
    with pytest.raises(
        RoundFailed, match="4 of 4 held-out episodes of round 0 are missing, and its weights are"
    ) as end:
        improve(config, [1, 3, 2, 1, 1])
    assert "same command" not in str(end.value)
    assert end.value.exit_code is not ExitCode.TRY_AGAIN
