"""A replay is compared with its log turn by turn."""

from __future__ import annotations

from envs.mint.comparison import COMPARISON, likeness
from envs.mint.recording import MintEpisode
from lemur_ray.agents.recording import RecordedTurn, Recording
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.report.agreement import Agreement, measure_agreement

LINE = "You have {} steps left and {} chances to propose solution left.\n"
TRACEBACK = "-" * 75 + "\n{} Traceback (most recent call last)\nCell In[{}], line 1\n----> 1 x\n\nNameError: name 'x'"


def logged(*turns: tuple[str, str | None], success: bool = False, reason: str = "max_steps") -> MintEpisode:
    counts = {"propose_solution": 0, "use_tool": len(turns), "invalid_action": 0}
    records = tuple(RecordedTurn(reply, content) for reply, content in turns)
    return MintEpisode("1", "p", records, success, subset="math", counts=counts, terminate_reason=reason)


def played(*steps: tuple[str | None, str], outcome: Outcome = Outcome.TURN_LIMIT) -> Episode:
    records = tuple(Step("reply", action, text, 0.0, action is not None) for action, text in steps)
    score = None if not outcome.scored else float(outcome is Outcome.SOLVED)
    return Episode(EpisodeKey("mint/math", "1", "replay", "r"), "math", outcome, score, 1, Trajectory((), records))


def compared(episodes: list[Episode], log: MintEpisode) -> Agreement:
    return measure_agreement(episodes, Recording("log", {log.task: log}), COMPARISON)


def message(text: str, steps: int, proposals: int = 2) -> str:
    return f"Observation:\n{text}\n{LINE.format(steps, proposals)}"


def test_an_equal_episode_agrees_in_everything() -> None:
    log = logged(("<execute>x</execute>", message("Out[1]: 3", 4)), ("<execute>y</execute>", None))
    ours = played(("<execute>x</execute>", message("Out[1]: 3", 4)), ("<execute>y</execute>", message("z", 3)))
    found = compared([ours], log)
    assert found.to_json()["agreement"] == 1.0
    assert found.counts == {"same_counters": 1, "same_terminate_reason": 1, "same_count_downs": 1, "count_downs": 1}
    assert found.cells == {"exact": 1}
    assert found.cell_agreement == 1.0


def test_differences_are_counted_and_named() -> None:
    log = logged(("<execute>x</execute>", message("Out[1]: 3", 4)), success=True, reason="task_success")
    ours = played(("<execute>x</execute>", message("Out[1]: 4", 3)))
    found = compared([ours], log)
    assert found.differing == ["1"]
    assert (found.same_success, found.counts["same_terminate_reason"], found.counts["same_count_downs"]) == (0, 0, 0)
    assert found.different_cells == [("1", 0, "Out[1]: 3", "Out[1]: 4")]
    assert found.cell_agreement == 0.0


def test_episodes_without_a_score_are_missing_and_searches_stand_apart() -> None:
    log = logged(("<execute>wikipedia_search('a')</execute>", message("Page: A", 4)))
    ours = played(("<execute>wikipedia_search('a')</execute>", message("Page: B", 4)))
    found = compared([ours, played(outcome=Outcome.ENV_ERROR)], log)
    assert (found.episodes, found.missing) == (1, ["1"])
    said = found.to_json()
    assert said["agreement"] == found.same_success / 2, "an episode without a score counts against the agreement"
    assert len(said["agreement_missing"]) == 1
    assert found.cells == {"search_different": 1}
    assert found.cell_agreement is None


def test_what_depends_on_the_machine_is_left_out() -> None:
    assert likeness("a", "a") == "exact"
    assert likeness(TRACEBACK.format("NameError", 2), TRACEBACK.format("NameError   ", 3)) == "normalised"
    assert likeness("<f at 0x7f00aa11bb22>", "<f at 0x7f99aa11bb22>") == "normalised"
    assert likeness("Out[2]: 1", "Out[1]: 1") == "normalised"
    assert likeness(TRACEBACK.format("N", 1), TRACEBACK.format("N", 1).replace("'x'", "'y'")) == "same_error"
    assert likeness("Out[1]: 1", "Out[1]: 2") == "different"
