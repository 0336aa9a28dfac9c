"""Lines for a person: enough to see that it goes on, never one for every step."""

from typing import Any

from lemur_ray.train.run.console import EVERY_S, Console


def record(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "loss": 2.0, "tokens_per_s": 100.0, "eta_s": 60.0, **more}


def test_steps_of_half_a_second_give_a_line_every_few_seconds_with_the_first_and_the_last() -> None:
    said: list[str] = []
    now = [100.0]
    console = Console(said.append, 33, lambda: now[0])
    for step in range(1, 34):
        now[0] += 0.5
        console.tell(record(step))
    assert [int(line.split("/")[0].split()[1]) for line in said] == [1, 11, 21, 31, 33]


def test_steps_longer_than_that_all_have_a_line() -> None:
    said: list[str] = []
    now = [0.0]
    console = Console(said.append, 100, lambda: now[0])
    for step in range(10, 60, 10):
        now[0] += EVERY_S
        console.tell(record(step), checkpoint=step - 10)
    assert len(said) == 5
    assert "checkpoint 40" in said[-1]


def test_an_evaluation_is_said_whenever_it_comes_and_the_next_line_waits_for_its_time() -> None:
    said: list[str] = []
    console = Console(said.append, 100, lambda: 7.0)
    console.tell(record(1))
    console.tell(record(2, **{"heldout/code/bits_per_byte": 1.5}))
    console.tell(record(3))
    assert [line.split()[0] for line in said] == ["step", "step", "held"]
