"""Questions a second end to end against an endpoint of no latency, sandboxed programs a second, on two cores.

Rates need a machine of their own; what a program costs in processor time says the same on a busy one.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from pathlib import Path

import pytest

from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.without_model.scripted import ExpertPolicy
from lemur_ray.benchmarks.question import question
from tests.agents.misbehaving import completion, serving
from tests.envs.questions import play, tasks_of, verdicts

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
QUESTIONS_PER_S = 150
PROGRAMS_PER_S = 12
PROGRAM_CPU_S = 0.16
"""Two cores give 12 programs a second so much each, and a little is left for whoever asks."""


def test_questions_a_second(tmp_path: Path) -> None:
    grade = "envs.language.mmlu.letters:grade"
    tasks = [question("q", f"q/{n}", "q", f"Question {n}?", grade, "A", shots="Worked. " * 800) for n in range(1500)]
    with serving(lambda asked: completion("A")) as server:
        policy = OpenAIPolicy(server.url, "toy")
        started = time.monotonic()
        found = verdicts(play(tasks, policy, tmp_path, in_flight=32))
        rate = len(tasks) / (time.monotonic() - started)
        policy.close()
    assert all(found.values())
    print(f"{rate:.0f} questions/s")
    assert rate >= QUESTIONS_PER_S


@pytest.mark.skipif(not (DATA / "bench/mbpp").is_dir(), reason="needs MBPP beneath LEMUR_DATA")
def test_programs_a_second(tmp_path: Path) -> None:
    tasks = tasks_of("mbpp", DATA)
    (tmp_path / "warm").mkdir()
    play(tasks[:8], ExpertPolicy(), tmp_path / "warm")
    started = time.monotonic()
    found = verdicts(play(tasks, ExpertPolicy(), tmp_path, in_flight=4))
    rate = len(tasks) / (time.monotonic() - started)
    assert all(found.values())
    print(f"{rate:.1f} programs/s")
    assert rate >= PROGRAMS_PER_S


@pytest.mark.skipif(not (DATA / "bench/mbpp").is_dir(), reason="needs MBPP beneath LEMUR_DATA")
def test_processor_time_of_a_program(tmp_path: Path) -> None:
    few, many = 20, 140
    for number in (few, many):
        (tmp_path / str(number)).mkdir()
    used = {number: _cpu_s(number, tmp_path / str(number)) for number in (few, many)}
    each = (used[many] - used[few]) / (many - few)
    print(f"{each:.3f} CPU s a program, user and system, of all processes")
    assert each <= PROGRAM_CPU_S


def _cpu_s(number: int, folder: Path) -> float:
    """Of a process that plays so many programs, with all that it starts: it waits for its sandboxes when it ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = multiprocessing.get_context("spawn").Process(target=_play_some, args=(number, folder))
    child.start()
    child.join()
    assert child.exitcode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _play_some(number: int, folder: Path) -> None:
    assert all(verdicts(play(tasks_of("mbpp", DATA)[:number], ExpertPolicy(), folder, in_flight=4)).values())
