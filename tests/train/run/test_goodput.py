"""Where the seconds of a run go: sums over attempts, clocks that jump, torn files."""

import json
from pathlib import Path

import pytest

from lemur_ray.train.run.goodput import USEFUL, SignsOfLife, Stopwatch, account, between, described


class FakeClock:
    """Seconds that pass when told to; the wall clock can be set."""

    def __init__(self) -> None:
        self.mono, self.off, self.boot = 100.0, 1_700_000_000.0, "a"

    def __call__(self) -> dict:
        return {"mono": self.mono, "boot": self.boot, "wall": self.mono + self.off}

    def seconds(self) -> float:
        return self.mono


def test_every_moment_of_an_attempt_belongs_to_one_item() -> None:
    now = FakeClock()
    watch = Stopwatch(now.seconds)
    now.mono += 3
    watch.switch("first_step")
    now.mono += 7
    watch.switch("step")
    for kind in (USEFUL, "replayed", "skipped", USEFUL):
        now.mono += 2
        with watch.during("data"):
            now.mono += 0.5
        watch.step_was(kind)
    with watch.during("checkpoint"):
        now.mono += 4
    now.mono += 1  # a step under way
    spent = watch.so_far()
    assert spent == {
        "setup": 3, "first_step": 7, "data": 2, USEFUL: 5, "replayed": 2, "skipped": 2, "checkpoint": 4,
    }  # fmt: skip
    assert sum(spent.values()) == now.mono - 100


def run_of_two_attempts(now: FakeClock, path: str) -> list[dict]:
    signs = SignsOfLife(path, now=now)
    signs.write(submit=True)
    now.mono += 10  # workers start
    signs.write(attempt="one")
    now.mono += 50
    signs.write(attempt="one", spent={"setup": 5.0, "first_step": 15.0, USEFUL: 30.0})
    now.mono += 20
    signs.write(attempt="one", spent={"setup": 5.0, "first_step": 15.0, USEFUL: 46.0, "checkpoint": 4.0})
    now.mono += 8  # killed; what it did since the last sign is lost
    signs = SignsOfLife(path, now=now)
    signs.write(submit=True)
    now.mono += 12
    signs.write(attempt="two")
    now.mono += 40
    signs.write(
        attempt="two", spent={"setup": 6.0, "first_step": 4.0, "replayed": 10.0, USEFUL: 20.0}, replayed_steps=5
    )
    return signs.records


def test_the_items_of_all_attempts_sum_to_the_time_since_the_first_submission(tmp_path: Path) -> None:
    now = FakeClock()
    found = account(run_of_two_attempts(now, str(tmp_path / "g.jsonl")))
    assert found["seconds"] == {
        USEFUL: 66.0, "start": 10.0, "restart": 20.0, "setup": 11.0, "first_step": 19.0, "replayed": 10.0,
        "skipped": 0.0, "data": 0.0, "checkpoint": 4.0, "evaluation": 0.0,
    }  # fmt: skip
    assert found["wall_s"] == now.mono - 100 == sum(found["seconds"].values())
    assert (found["attempts"], found["replayed_steps"]) == (2, 5)
    assert found["goodput"] == pytest.approx(66 / 140)
    line = described(found)
    assert "goodput 47.1%" in line
    assert "restart 20.0" in line
    assert "2 attempt(s), 5 step(s) replayed" in line


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path, jump_s: float) -> None:
    steady, jumping = FakeClock(), FakeClock()
    expected = account(run_of_two_attempts(steady, str(tmp_path / "a.jsonl")))
    path = tmp_path / "b.jsonl"
    records = run_of_two_attempts(jumping, str(path))
    for record in records[3:]:
        record["at"]["wall"] += jump_s
    assert account(records) == expected


def test_between_two_machines_only_the_wall_clock_is_known_and_never_counts_backwards() -> None:
    here, there = {"mono": 900.0, "boot": "a", "wall": 1000.0}, {"mono": 5.0, "boot": "b", "wall": 1030.0}
    assert between(here, there) == 30.0
    assert between(there, here) == 0.0


def test_a_torn_last_line_is_cut_off_and_later_signs_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    now = FakeClock()
    records = run_of_two_attempts(now, str(path))
    path.write_bytes(path.read_bytes()[:-7])
    signs = SignsOfLife(str(path), now=now)
    assert signs.records == records[:-1]
    signs.write(attempt="three")
    assert [json.loads(line)["attempt"] for line in path.read_text().splitlines()[-2:]] == ["two", "three"]


def test_signs_are_due_by_the_monotonic_clock(tmp_path: Path) -> None:
    now = FakeClock()
    signs = SignsOfLife(str(tmp_path / "g.jsonl"), now=now)
    assert signs.due()
    signs.write(attempt="one")
    now.off += 1e6
    assert not signs.due()
    now.mono += 1.5
    assert signs.due()
    remote = SignsOfLife("memory://bucket/g.jsonl", now=now)
    remote.write(attempt="one")
    now.mono += 1.5
    assert not remote.due()
    remote.write(attempt="one")
    remote.close()
    assert len(SignsOfLife("memory://bucket/g.jsonl", now=now).records) == 2
