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
from lemur_ray.rollout.actors.actor import ActorEvent, Ended
from lemur_ray.rollout.actors.pool import ActorPool
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, Order
from lemur_ray.rollout.scheduler import Orders
from lemur_ray.rollout.threads import PoolBroken
from tests.rollout.actors.scripted_crew import LOST, PENDING, SOLVED, ScriptedCrew
from tests.rollout.toy import toy_task


def orders(*names: str) -> list[Order]:
    tasks = [toy_task(name) for name in names]
    return Orders(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())[:]


def pool_of(crew: ScriptedCrew, **more: Any) -> ActorPool:
    return ActorPool(crew, **{"num_actors": 3, "episodes_per_actor": 2, **more})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_ended_before_the_pool_broke_is_handed_out_first():
    def play(order: Order) -> ActorEvent:
        return SOLVED if order.task.id.startswith("good") else LOST

    actors = pool_of(ScriptedCrew([1], play), num_actors=2, max_deaths=0, quiet_s=0.0)
    for order in orders("bad0", "good0", "bad1", "good1"):
        actors.submit(order)
    ended = {order.task.id: attempt.outcome for order, attempt in actors.collect(0.0)}
    assert ended == {name: Outcome.SOLVED if "good" in name else Outcome.INFRA_LOST for name in ended}
    assert set(ended) == {"bad0", "good0", "bad1", "good1"}
    with pytest.raises(PoolBroken, match="actors died 1 times in a row"):
        actors.collect(0.0)


@pytest.mark.parametrize(("fault", "raised"), [(LOST, PoolBroken), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_a_pool_that_cannot_start_leaves_no_actor_behind(fault: Any, raised: type[BaseException]):
    crew = ScriptedCrew([PENDING, PENDING, fault])
    with pytest.raises(raised):
        pool_of(crew, episodes_per_actor=1, start_timeout_s=0.0)
    assert crew.alive == []
    assert crew.closed


def test_actors_that_are_lost_before_any_runs_leave_the_start_to_the_others():
    with pytest.raises(PoolBroken, match="environment actors do not start: killed"):
        pool_of(ScriptedCrew([LOST]))
    crew = ScriptedCrew([LOST, PENDING, 3, PENDING])
    actors = pool_of(crew)
    assert (actors.capacity, actors.pids) == (2, [3])
    assert actors.collect(0.0) == []
    assert len(crew.alive) == 3, "another one is asked for in its place"


def test_an_actor_without_a_node_gets_no_orders_until_it_has_one():
    crew = ScriptedCrew([1, PENDING, PENDING, PENDING])
    actors = pool_of(crew)
    assert (actors.capacity, actors.pids) == (2, [1])
    for order in orders("a", "b"):
        actors.submit(order)
    with pytest.raises(IndexError, match="every actor plays as many"):
        actors.submit(orders("z")[0])
    assert len(actors.collect(0.0)) == 2
    assert [one.played for one in crew.alive] == [["a", "b"], [], []]
    crew.alive[2].run(7)
    actors.collect(0.0)
    assert (actors.capacity, actors.pids) == (4, [1, 7])
    for order in orders("c", "d", "e", "f"):
        actors.submit(order)
    assert sorted(map(len, (one.played for one in crew.alive))) == [0, 2, 4]


def test_an_actor_that_is_lost_while_it_plays_nothing_gets_no_more_orders():
    crew = ScriptedCrew([1, 2, PENDING])
    actors = pool_of(crew, num_actors=2)
    lost = crew.alive[0]
    lost.lose()
    assert actors.collect(0.0) == []
    assert (actors.capacity, actors.pids) == (2, [2])
    for order in orders("a", "b"):
        actors.submit(order)
    assert {attempt.outcome for _, attempt in actors.collect(0.0)} == {Outcome.SOLVED}
    assert lost.played == []


def test_what_a_lost_actor_says_later_counts_no_more():
    crew = ScriptedCrew([1], lambda order: PENDING)
    actors = pool_of(crew, num_actors=1)
    (order,) = orders("a")
    actors.submit(order)
    lost = crew.alive[0]
    lost.lose()
    assert [attempt.outcome for _, attempt in actors.collect(0.0)] == [Outcome.INFRA_LOST]
    lost.tell(Ended(lost.tickets[0], Attempt(Outcome.SOLVED, 1.0)))
    lost.lose()
    assert actors.collect(0.0) == []
    assert (actors.capacity, len(crew.alive)) == (2, 1)


def test_a_node_lost_with_many_actors_is_one_loss():
    crew = ScriptedCrew([1])
    actors = pool_of(crew, num_actors=12, max_deaths=2, quiet_s=0.0)
    for _ in range(2):
        gone = list(crew.alive)
        for one in gone[:6]:
            one.lose()
        actors.collect(0.0)
        for one in gone[6:]:  # the others of them are found out later
            one.lose()
        actors.collect(0.0)
    actors.collect(0.0)
    assert actors.capacity == 24
    crew.alive[0].lose()
    actors.collect(0.0)
    with pytest.raises(PoolBroken, match="actors died 3 times in a row"):
        actors.collect(0.0)


def test_a_pool_whose_actors_never_find_a_node_breaks_and_one_where_some_do_says_so(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(PoolBroken, match="3 environment actors wait for a host"):
        pool_of(ScriptedCrew([PENDING]), start_timeout_s=0.0)
    clock = Clock()
    actors = pool_of(crew := ScriptedCrew([1, PENDING]), clock=clock)
    clock.now += pool.SAY_AFTER_S + 1
    actors.collect(0.0)
    assert "2 of 3 environment actors wait for a host; the others play on" in capsys.readouterr().err
    crew.alive[0].lose()
    clock.now += 600
    actors.collect(0.0)
    with pytest.raises(PoolBroken, match="3 environment actors wait"):
        actors.collect(0.0)


def test_an_actor_full_of_stuck_calls_is_replaced_once_it_plays_nothing():
    stuck = Ended(0, Attempt(Outcome.ENV_ERROR, None), stuck=2)
    crew = ScriptedCrew([1, 2], lambda order: stuck if order.task.id == "a" else PENDING)
    actors = pool_of(crew, num_actors=1, max_stuck=2)
    for order in orders("a", "b"):
        actors.submit(order)
    assert len(actors.collect(0.0)) == 1
    assert (actors.capacity, actors.pids) == (1, [1]), "what it plays, and no more"
    first = crew.alive[0]
    first.tell(Ended(first.tickets[1], Attempt(Outcome.SOLVED, 1.0), stuck=2))
    assert len(actors.collect(0.0)) == 1
    actors.collect(0.0)
    assert (actors.capacity, actors.pids) == (2, [2])
    assert crew.alive == [crew.alive[0]]


def test_idle_actors_of_other_hosts_end_with_the_run_and_are_asked_for_again_by_the_next():
    clock, playing = Clock(), ["a", "b", "c"]
    crew = ScriptedCrew([1, 2, 3, PENDING], lambda order: PENDING if order.task.id in playing else SOLVED)
    crew.elsewhere = True
    actors = pool_of(crew, num_actors=4, clock=clock)
    actors.expect(100)
    for order in orders("a", "b", "c"):
        actors.submit(order)
    for one in crew.alive[:2]:
        one.tell(Ended(one.tickets[0], Attempt(Outcome.SOLVED, 1.0)))
    assert len(actors.collect(0.0)) == 2
    actors.expect(1)
    for later in (0, pool.IDLE_S - 1, 2):
        assert len(crew.alive) == 4
        clock.now += later
        actors.collect(0.0)
    assert (actors.pids, len(crew.alive)) == ([3], 1), "neither who is idle nor who waits for a host"
    actors.expect(7)
    assert len(crew.alive) == 4


def test_idle_actors_of_this_host_stay():
    clock = Clock()
    actors = pool_of(crew := ScriptedCrew([1]), clock=clock)
    actors.expect(1)
    clock.now += 10 * pool.IDLE_S
    actors.collect(0.0)
    assert len(crew.alive) == 3


def test_an_idle_actor_of_this_host_keeps_no_other_host_in_use():
    clock = Clock()
    actors = pool_of(crew := ScriptedCrew([1, PENDING]), clock=clock)
    crew.elsewhere = True
    for number, one in enumerate(crew.alive[1:], 2):
        one.run(number)
    actors.collect(0.0)
    actors.expect(1)
    clock.now += 2 * pool.IDLE_S
    actors.collect(0.0)
    assert actors.pids == [1]


def test_actors_that_die_when_little_is_left_are_not_replaced_beyond_need():
    crew = ScriptedCrew([1], lambda order: PENDING)
    actors = pool_of(crew, num_actors=3)
    for order in orders("a", "b"):
        actors.submit(order)
    actors.expect(2)
    crew.alive[2].lose()
    actors.collect(0.0)
    assert len(crew.alive) == 2
    crew.alive[0].lose()
    crew.alive[1].lose()
    assert len(actors.collect(0.0)) == 2
    assert len(crew.alive) == 1


def test_pressure_is_the_sum_of_what_was_told_and_goes_with_its_actor():
    clock = Clock()
    actors = pool_of(crew := ScriptedCrew([1]), clock=clock)
    assert actors.pressure() == Pressure()
    clock.now += pool.PRESSURE_EVERY_S
    actors.pressure()
    assert [one.asked for one in crew.alive] == [1, 1, 1]
    crew.alive[0].tell(Pressure(3, 1, 5))
    actors.collect(0.0)
    assert actors.pressure() == Pressure(10, 3, 6)
    clock.now += pool.PRESSURE_EVERY_S
    actors.pressure()
    assert [one.asked for one in crew.alive] == [2, 1, 1], "nobody is asked again who has not answered"
    crew.alive[0].lose()
    actors.collect(0.0)
    assert actors.pressure() == Pressure(7, 2, 1)


def test_an_actor_that_answers_nothing_for_long_is_ended_and_what_it_plays_is_played_elsewhere():
    clock = Clock()
    actors = pool_of(crew := ScriptedCrew([1], lambda order: PENDING), num_actors=2, clock=clock)
    actors.submit(orders("a")[0])
    silent, answers = crew.alive
    for _ in range(400):
        clock.now += pool.PRESSURE_EVERY_S
        actors.pressure()
        answers.tell(Pressure())
        if ended := actors.collect(0.0):
            break
    assert clock.now <= pool.SILENT_S + 3 * pool.PRESSURE_EVERY_S
    ((order, attempt),) = ended
    assert (order.task.id, attempt.outcome, attempt.excused) == ("a", Outcome.INFRA_LOST, True)
    assert "answered nothing for 10 minutes" in attempt.detail
    assert silent not in crew.alive
    assert answers in crew.alive


def work_per_order(num_actors: int, count: Callable[[], int]) -> float:
    """Lines of the pool's own code that an order takes, of 400 orders over so many actors."""
    actors = pool_of(ScriptedCrew([1]), num_actors=num_actors, episodes_per_actor=4)
    many = orders(*(f"t{n}" for n in range(400)))
    before = count()
    for order in many:
        assert actors.capacity >= 1
        actors.submit(order)
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
