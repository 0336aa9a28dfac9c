"""Agreement of a replay with its recording."""

import json
from pathlib import Path

from envs.intercode.recording import recorded_with
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.report.agreement import compare_recording


def played(task: str, outcome: Outcome, rewards: list[float]) -> Episode:
    steps = tuple(Step("a", "a", "o", reward, True) for reward in rewards)
    score = max(rewards) if outcome.scored else None
    return Episode(EpisodeKey("b", task, "p", "r"), "easy", outcome, score, 1, Trajectory((), steps))


def recorded(rewards: list[float]) -> dict[str, object]:
    history = {"actions": ["a"] * len(rewards), "observations": ["o"] * len(rewards), "rewards": rewards}
    return {"query": "?", "turn_history": history, "summary": {"max_reward": max(rewards)}}


def test_success_is_compared_by_episode_and_reward_by_turn(tmp_path: Path):
    path = tmp_path / "log.json"
    log = {"0": recorded([0.5, 1.0]), "1": recorded([0.2]), "2": recorded([1.0]), "3": recorded([0.0])}
    path.write_text(json.dumps(log))
    episodes = [
        played("x-0", Outcome.SOLVED, [0.501, 1.0]),
        played("x-1", Outcome.TURN_LIMIT, [0.21]),
        played("x-2", Outcome.TURN_LIMIT, [0.9, 0.9]),
        played("x-3", Outcome.ENV_ERROR, [0.0]),
    ]
    found = compare_recording(str(path), recorded_with(reward_tolerance=0.005), episodes)
    assert found["agreement"] == 2 / 4, "an episode without a score counts against the agreement"
    assert found["agreement_missing"] == ["x-3"]
    assert found["reward_agreement"] == 2 / 4
    assert found["differing"] == ["x-2"]
    assert (found["agreement_counts"]["recorded_solved"], found["agreement_counts"]["solved"]) == (2, 1)


def test_nothing_scored_agrees_in_nothing_and_nothing_replayed_has_no_agreement_to_print(tmp_path: Path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"3": recorded([0.0])}))
    assert compare_recording(str(path), recorded_with(), [played("x-3", Outcome.ENV_ERROR, [0.0])])["agreement"] == 0.0
    assert compare_recording("", recorded_with(), [played("x-3", Outcome.ENV_ERROR, [0.0])]) == {}
