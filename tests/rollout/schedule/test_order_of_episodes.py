"""Which episodes of a run wait for which others."""

from dataclasses import replace
from pathlib import Path

import pytest

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.threads import ThreadPool
from tests.rollout.toy import run, toy_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


class Ordered(ThreadPool):
    """Remembers in which order episodes began and which were open then."""

    def __init__(self, capacity: int) -> None:
        super().__init__(ExpertPolicy(), capacity)
        self.began: list[tuple[str, frozenset[str]]] = []
        self._open: set[str] = set()

    def submit(self, spec: EpisodeSpec) -> None:
        self.began.append((self.called(spec), frozenset(self._open)))
        self._open.add(self.called(spec))
        super().submit(spec)

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        ended = super().collect(timeout_s)
        self._open -= {self.called(spec) for spec, _ in ended}
        return ended

    @staticmethod
    def called(spec: EpisodeSpec) -> str:
        return spec.task.id + str(spec.key.epoch or "")


def test_a_task_begins_when_those_it_waits_for_have_ended_and_others_do_not_wait(path: Path):
    after = {"b": ("a",), "c": ("a", "gone"), "d": ("b", "c")}
    tasks = [replace(toy_task(name), after=after.get(name, ())) for name in "dcbae"]
    pool = Ordered(capacity=5)
    episodes = run(pool, tasks, path)
    assert [episode.outcome for episode in episodes] == [Outcome.SOLVED] * 5
    names = [name for name, _ in pool.began]
    assert names[:2] == ["a", "e"], "what waits for nobody begins at once"
    for name, still_open in pool.began:
        assert not set(after.get(name, ())) & still_open
    assert names[-1] == "d"


@pytest.mark.parametrize("lanes", [1, 2, 0])
def test_epochs_of_tasks_that_see_what_others_did_go_one_after_another_in_each_lane(path: Path, lanes: int):
    tasks = [replace(toy_task("a"), lanes=lanes), replace(toy_task("b"), after=("a",), lanes=lanes), toy_task("c")]
    pool = Ordered(capacity=9)
    assert len(run(pool, tasks, path, epochs=3)) == 9
    names = [name for name, _ in pool.began]
    for epoch in ("1", "2") if lanes == 1 else ("2",) if lanes == 2 else ():
        before = str(int(epoch) - lanes or "")
        still_open = dict(pool.began)[f"a{epoch}"]
        assert not {f"a{before}", f"b{before}"} & still_open
        assert names.index(f"b{before}") < names.index(f"a{epoch}")
    at_once = {"a", "c", "c1", "c2", *("a1",) * (lanes != 1), *("a2",) * (lanes == 0)}
    assert set(names[: len(at_once)]) == at_once, "what waits for nobody begins at once"


def test_tasks_that_wait_for_each_other_are_played_all_the_same(path: Path):
    tasks = [replace(toy_task(name), after=(other,)) for name, other in ("ab", "ba")]
    assert len(run(Ordered(capacity=2), tasks, path)) == 2
