"""What the pool hands out and gives back when actors die, wait or idle; a test speaks for the actors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.actors import pool
from lemur_ray.rollout.actors.actor import ActorEvent, EpisodeEnded
from lemur_ray.rollout.actors.pool import ActorPool, PoolLimits
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.threads import PoolBroken
from tests.rollout.actors.scripted_backend import LOST, PENDING, SOLVED, ScriptedBackend
from tests.rollout.toy import toy_task


def plan(*names: str) -> list[EpisodeSpec]:
    tasks = [toy_task(name) for name in names]
    return EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())[:]


def pool_of(backend: ScriptedBackend, **more: Any) -> ActorPool:
    clock = {"clock": more.pop("clock")} if "clock" in more else {}
    limits = PoolLimits(**{"num_actors": 3, "episodes_per_actor": 2, **more})
    return ActorPool(backend, limits, **clock)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_ended_before_the_pool_broke_is_handed_out_first():
    def play(spec: EpisodeSpec) -> ActorEvent:
        return SOLVED if spec.task.id.startswith("good") else LOST

    actors = pool_of(ScriptedBackend([1], play), num_actors=2, max_deaths=0, quiet_s=0.0)
    for spec in plan("bad0", "good0", "bad1", "good1"):
        actors.submit(spec)
    ended = {spec.task.id: attempt.outcome for spec, attempt in actors.collect(0.0)}
    assert ended == {name: Outcome.SOLVED if "good" in name else Outcome.INFRA_LOST for name in ended}
    assert set(ended) == {"bad0", "good0", "bad1", "good1"}
    with pytest.raises(PoolBroken, match="actors died 1 times in a row"):
        actors.collect(0.0)


@pytest.mark.parametrize(("fault", "raised"), [(LOST, PoolBroken), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_a_pool_that_cannot_start_leaves_no_actor_behind(fault: Any, raised: type[BaseException]):
    backend = ScriptedBackend([PENDING, PENDING, fault])
    with pytest.raises(raised):
        pool_of(backend, episodes_per_actor=1, start_timeout_s=0.0)
    assert backend.alive == []
    assert backend.closed


def test_actors_that_are_lost_before_any_runs_leave_the_start_to_the_others():
    with pytest.raises(PoolBroken, match="environment actors do not start: killed"):
        pool_of(ScriptedBackend([LOST]))
    backend = ScriptedBackend([LOST, PENDING, 3, PENDING])
    actors = pool_of(backend)
    assert (actors.capacity, actors.pids) == (2, [3])
    assert actors.collect(0.0) == []
    assert len(backend.alive) == 3, "another one is asked for in its place"


def test_an_actor_without_a_node_gets_no_orders_until_it_has_one():
    backend = ScriptedBackend([1, PENDING, PENDING, PENDING])
    actors = pool_of(backend)
    assert (actors.capacity, actors.pids) == (2, [1])
    for spec in plan("a", "b"):
        actors.submit(spec)
    with pytest.raises(IndexError, match="every actor plays as many"):
        actors.submit(plan("z")[0])
    assert len(actors.collect(0.0)) == 2
    assert [one.played for one in backend.alive] == [["a", "b"], [], []]
    backend.alive[2].run(7)
    actors.collect(0.0)
    assert (actors.capacity, actors.pids) == (4, [1, 7])
    for spec in plan("c", "d", "e", "f"):
        actors.submit(spec)
    assert sorted(map(len, (one.played for one in backend.alive))) == [0, 2, 4]


def test_an_actor_that_is_lost_while_it_plays_nothing_gets_no_more_orders():
    backend = ScriptedBackend([1, 2, PENDING])
    actors = pool_of(backend, num_actors=2)
    lost = backend.alive[0]
    lost.lose()
    assert actors.collect(0.0) == []
    assert (actors.capacity, actors.pids) == (2, [2])
    for spec in plan("a", "b"):
        actors.submit(spec)
    assert {attempt.outcome for _, attempt in actors.collect(0.0)} == {Outcome.SOLVED}
    assert lost.played == []


def test_what_a_lost_actor_says_later_counts_no_more():
    backend = ScriptedBackend([1], lambda spec: PENDING)
    actors = pool_of(backend, num_actors=1)
    (spec,) = plan("a")
    actors.submit(spec)
    lost = backend.alive[0]
    lost.lose()
    assert [attempt.outcome for _, attempt in actors.collect(0.0)] == [Outcome.INFRA_LOST]
    lost.tell(EpisodeEnded(lost.tickets[0], Attempt(Outcome.SOLVED, 1.0)))
    lost.lose()
    assert actors.collect(0.0) == []
    assert (actors.capacity, len(backend.alive)) == (2, 1)


def test_a_node_lost_with_many_actors_is_one_loss():
    backend = ScriptedBackend([1])
    actors = pool_of(backend, num_actors=12, max_deaths=2, quiet_s=0.0)
    for _ in range(2):
        gone = list(backend.alive)
        for one in gone[:6]:
            one.lose()
        actors.collect(0.0)
        for one in gone[6:]:  # the others of them are found out later
            one.lose()
        actors.collect(0.0)
    actors.collect(0.0)
    assert actors.capacity == 24
    backend.alive[0].lose()
    actors.collect(0.0)
    with pytest.raises(PoolBroken, match="actors died 3 times in a row"):
        actors.collect(0.0)


def test_a_pool_whose_actors_never_find_a_node_breaks_and_one_where_some_do_says_so(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(PoolBroken, match="3 environment actors wait for a host"):
        pool_of(ScriptedBackend([PENDING]), start_timeout_s=0.0)
    clock = Clock()
    actors = pool_of(backend := ScriptedBackend([1, PENDING]), clock=clock)
    clock.now += pool.SAY_AFTER_S + 1
    actors.collect(0.0)
    assert "2 of 3 environment actors wait for a host; the others play on" in capsys.readouterr().err
    backend.alive[0].lose()
    clock.now += 600
    actors.collect(0.0)
    with pytest.raises(PoolBroken, match="3 environment actors wait"):
        actors.collect(0.0)


def test_an_actor_full_of_stuck_calls_is_replaced_once_it_plays_nothing():
    stuck = EpisodeEnded(0, Attempt(Outcome.ENV_ERROR, None), stuck=2)
    backend = ScriptedBackend([1, 2], lambda spec: stuck if spec.task.id == "a" else PENDING)
    actors = pool_of(backend, num_actors=1, max_stuck=2)
    for spec in plan("a", "b"):
        actors.submit(spec)
    assert len(actors.collect(0.0)) == 1
    assert (actors.capacity, actors.pids) == (1, [1]), "what it plays, and no more"
    first = backend.alive[0]
    first.tell(EpisodeEnded(first.tickets[1], Attempt(Outcome.SOLVED, 1.0), stuck=2))
    assert len(actors.collect(0.0)) == 1
    actors.collect(0.0)
    assert (actors.capacity, actors.pids) == (2, [2])
    assert backend.alive == [backend.alive[0]]


def test_idle_actors_of_other_hosts_end_with_the_run_and_are_asked_for_again_by_the_next():
    clock, playing = Clock(), ["a", "b", "c"]
    backend = ScriptedBackend([1, 2, 3, PENDING], lambda spec: PENDING if spec.task.id in playing else SOLVED)
    backend.elsewhere = True
    actors = pool_of(backend, num_actors=4, clock=clock)
    actors.expect(100)
    for spec in plan("a", "b", "c"):
        actors.submit(spec)
    for one in backend.alive[:2]:
        one.tell(EpisodeEnded(one.tickets[0], Attempt(Outcome.SOLVED, 1.0)))
    assert len(actors.collect(0.0)) == 2
    actors.expect(1)
    for later in (0, pool.IDLE_S - 1, 2):
        assert len(backend.alive) == 4
        clock.now += later
        actors.collect(0.0)
    assert (actors.pids, len(backend.alive)) == ([3], 1), "neither who is idle nor who waits for a host"
    actors.expect(7)
    assert len(backend.alive) == 4


def test_idle_actors_of_this_host_stay():
    clock = Clock()
    actors = pool_of(backend := ScriptedBackend([1]), clock=clock)
    actors.expect(1)
    clock.now += 10 * pool.IDLE_S
    actors.collect(0.0)
    assert len(backend.alive) == 3


def test_an_idle_actor_of_this_host_keeps_no_other_host_in_use():
    clock = Clock()
    actors = pool_of(backend := ScriptedBackend([1, PENDING]), clock=clock)
    backend.elsewhere = True
    for number, one in enumerate(backend.alive[1:], 2):
        one.run(number)
    actors.collect(0.0)
    actors.expect(1)
    clock.now += 2 * pool.IDLE_S
    actors.collect(0.0)
    assert actors.pids == [1]


def test_actors_that_die_when_little_is_left_are_not_replaced_beyond_need():
    backend = ScriptedBackend([1], lambda spec: PENDING)
    actors = pool_of(backend, num_actors=3)
    for spec in plan("a", "b"):
        actors.submit(spec)
    actors.expect(2)
    backend.alive[2].lose()
    actors.collect(0.0)
    assert len(backend.alive) == 2
    backend.alive[0].lose()
    backend.alive[1].lose()
    assert len(actors.collect(0.0)) == 2
    assert len(backend.alive) == 1


def test_pressure_is_the_sum_of_what_was_told_and_goes_with_its_actor():
    clock = Clock()
    actors = pool_of(backend := ScriptedBackend([1]), clock=clock)
    assert actors.pressure() == Pressure()
    clock.now += pool.PRESSURE_EVERY_S
    actors.pressure()
    assert [one.asked for one in backend.alive] == [1, 1, 1]
    backend.alive[0].tell(Pressure(3, 1, 5))
    actors.collect(0.0)
    assert actors.pressure() == Pressure(10, 3, 6)
    clock.now += pool.PRESSURE_EVERY_S
    actors.pressure()
    assert [one.asked for one in backend.alive] == [2, 1, 1], "nobody is asked again who has not answered"
    backend.alive[0].lose()
    actors.collect(0.0)
    assert actors.pressure() == Pressure(7, 2, 1)


def test_an_actor_that_answers_nothing_for_long_is_ended_and_what_it_plays_is_played_elsewhere():
    clock = Clock()
    actors = pool_of(backend := ScriptedBackend([1], lambda spec: PENDING), num_actors=2, clock=clock)
    actors.submit(plan("a")[0])
    silent, answers = backend.alive
    for _ in range(400):
        clock.now += pool.PRESSURE_EVERY_S
        actors.pressure()
        answers.tell(Pressure())
        if ended := actors.collect(0.0):
            break
    assert clock.now <= pool.SILENT_S + 3 * pool.PRESSURE_EVERY_S
    ((spec, attempt),) = ended
    assert (spec.task.id, attempt.outcome, attempt.excused) == ("a", Outcome.INFRA_LOST, True)
    assert "answered nothing for 10 minutes" in attempt.detail
    assert silent not in backend.alive
    assert answers in backend.alive


def work_per_order(num_actors: int, count: Callable[[], int]) -> float:
    """Lines of the pool's own code that an order takes, of 400 orders over so many actors."""
    actors = pool_of(ScriptedBackend([1]), num_actors=num_actors, episodes_per_actor=4)
    many = plan(*(f"t{n}" for n in range(400)))
    before = count()
    for spec in many:
        assert actors.capacity >= 1
        actors.submit(spec)
        actors.expect(10**6)
        assert len(actors.collect(0.0)) == 1
    return (count() - before) / len(many)


def test_an_order_takes_no_more_steps_of_the_pool_with_many_actors_than_with_few(monkeypatch: pytest.MonkeyPatch):
    lines = [0]

    def tracing(frame: Any, event: str, arg: Any) -> Any:
        if "rollout/actors" not in frame.f_code.co_filename:
            return None
        lines[0] += event == "line"
        return tracing

    before = sys.gettrace()
    sys.settrace(tracing)
    try:
        few, many = (work_per_order(number, lambda: lines[0]) for number in (10, 1000))
    finally:
        sys.settrace(before)
    assert few > 10
    assert many < few * 1.2 + 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_pool_goes_on_after_a_long_pause_with_the_actors_that_it_had(elsewhere: bool):
    clock, backend = Clock(), ScriptedBackend([1])
    backend.elsewhere = elsewhere
    actors = pool_of(backend, clock=clock)
    actors.collect(0.0)
    had = list(backend.alive)
    actors.expect(1)  # as at the end of a run
    clock.now = 3600.0
    actors.resume(6)
    assert backend.alive == had


def test_an_actor_that_started_during_a_pause_is_no_shortage():
    clock, backend = Clock(), ScriptedBackend([1, PENDING])
    actors = pool_of(backend, clock=clock, num_actors=1)
    (first,) = backend.alive
    first.lose()
    actors.collect(0.0)
    (second,) = backend.alive
    second.run(2)
    clock.now = 3600.0
    actors.resume(2)
    assert (actors.pids, backend.alive) == ([2], [second])
