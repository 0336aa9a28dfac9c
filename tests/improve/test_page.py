"""The page of a run: what it says of rounds, and which games it shows."""

from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.improve.outcome import best_round, round_numbers
from lemur_ray.improve.page import RunPage

PLAYED = {
    "episodes": 20, "missing": 1, "won": 12, "turns": 90, "own_turns": 50, "refused": 5, "overlong": 2, "play_s": 61.0,
}  # fmt: skip
TRAINED = {"loss": 0.25, "grad_norm": 1.5, "learn_s": 5.0}


def episode(task: str, won: bool, version: int) -> Episode:
    step = Step(f"take <b>{task}</b>", "take", "done" if won else "Nothing happens.", float(won), won)
    outcome = Outcome.SOLVED if won else Outcome.FAILED
    trajectory = Trajectory((Message("user", "go"),), (step,))
    return Episode(EpisodeKey("b", task, f"p@{version}", "r"), "kind", outcome, float(won), 1, trajectory)


def written(tmp_path: Path, rounds: list[Any], evaluations: dict[int, list[Episode]], **more: Any) -> str:
    config, best = ImproveConfig(init_from="start", algorithm=more.pop("algorithm", "wins")), best_round(evaluations)
    return RunPage(config, "run-2", rounds, evaluations, best, "today", **more).write(tmp_path).read_text()


def test_it_shows_rates_over_rounds_and_three_games_gained_and_lost_of_each_turn_by_turn(tmp_path: Path) -> None:
    won = {0: "abcde", 2: "efghi"}
    evaluations = {n: [episode(task, task in tasks, n) for task in "abcdefghij"] for n, tasks in won.items()}
    text = written(tmp_path, [(1, PLAYED, TRAINED), (2, {**PLAYED, "won": 15}, TRAINED)], evaluations)
    assert "50.0 % [23.7, 76.3]" in text
    assert "+4 \u22124" in text
    assert "12 of 19" in text
    assert "15 of 19" in text
    assert text.count('<details class="ep"') == 2 * 2 * 3
    assert "4 of 10 games; 3 of them, before and after:" in text
    for task in "abcfgh":
        assert text.count(f"take &lt;b&gt;{task}&lt;/b&gt;") == 2
    assert "take &lt;b&gt;d" not in text
    assert "agrees with teacher" not in text, "nobody taught"
    assert "groups that differ" not in text


def test_the_gain_over_another_run_is_a_tile(tmp_path: Path) -> None:
    other = {"run": "runs/c", "control": True, "rate": 0.25, "interval": [0.1, 0.5], "gained": 7, "lost": 2, "p": 0.18}
    evaluations = {n: [episode("a", True, n)] for n in (0, 1)}
    text = written(tmp_path, [], evaluations, compared_to=other)
    assert "control runs/c" in text
    assert "25.0 % [10.0, 50.0]" in text
    assert "+7 \u22122" in text
    assert "games gained and lost over it, p 0.18" in text
    assert "over it" not in written(tmp_path, [], evaluations)


def test_the_best_round_is_named_where_it_is_not_the_last(tmp_path: Path) -> None:
    won = {0: 2, 2: 5, 4: 5, 6: 4}
    evaluations = {n: [episode(str(i), i < count, n) for i in range(10)] for n, count in won.items()}
    assert best_round(evaluations) == 4, "the later of two equal ones"
    assert "best held out, after round 4; its checkpoint is kept" in written(tmp_path, [], evaluations)
    assert "best held out" not in written(tmp_path, [], {0: evaluations[0], 2: evaluations[2]})
    assert "None of 10 games." in written(tmp_path, [], {0: evaluations[0], 2: evaluations[2]}), "lost"
    assert "best held out, at the start" in written(tmp_path, [], {0: evaluations[2], 2: evaluations[0]})


def test_an_evaluation_with_too_many_missing_episodes_is_never_the_best() -> None:
    lost = Episode(EpisodeKey("b", "t", "p", "r"), "kind", Outcome.INFRA_LOST, None, 1, Trajectory((), ()))
    half = [episode("a", True, 2), lost]
    assert best_round({0: [episode("a", False, 0)], 2: half}) == 0
    assert best_round({0: [episode("a", False, 0)] * 9, 2: [*[episode("a", True, 2)] * 9, lost]}) == 2
    assert best_round({}) is None


def test_columns_of_a_teacher_and_of_groups_are_there_where_they_mean_something(tmp_path: Path) -> None:
    taught = {**PLAYED, "agreed": 20, "after_refused": 4, "agreed_after_refused": 1}
    text = written(tmp_path, [(1, taught, TRAINED)], {0: [episode("a", True, 0)]}, stopped="It <stopped>.")
    assert "agrees with teacher" in text
    assert "25.0 %" in text
    assert "It &lt;stopped&gt;." in text
    assert '<details class="ep"' not in text
    grouped = {**PLAYED, "groups": 5, "mixed": 3, "entropy": 0.5}
    text = written(tmp_path, [(1, grouped, {**TRAINED, "mismatch_max": 1e-6})], {0: []}, algorithm="rloo")
    assert "3 of 5" in text
    assert "server to learner" in text


def test_agreement_is_counted_after_a_refused_turn_and_otherwise() -> None:
    steps = [
        Step("look", "look", "", 0.0, True, instead="look!"),
        Step("fly", "fly", "", 0.0, False, weight=0),
        Step("go", "go", "", 0.0, True, instead="go"),
        Step("fly", "fly", "", 0.0, False, weight=0),
        Step("fly", "fly", "", 0.0, False, weight=0),
        Step("by the teacher", "x", "", 0.0, True),
    ]
    one = Episode(EpisodeKey("b", "t", "p", "r"), "", Outcome.CONTEXT_OVERFLOW, 0.0, 1, Trajectory((), tuple(steps)))
    numbers = round_numbers([one], teaches=True)
    assert (numbers["own_turns"], numbers["refused"], numbers["agreed"], numbers["overlong"]) == (5, 3, 2, 1)
    assert (numbers["after_refused"], numbers["agreed_after_refused"]) == (2, 1)
