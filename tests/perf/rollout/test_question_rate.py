"""Questions a second end to end against an endpoint of no latency, sandboxed programs a second, on two cores.

Rates need a machine of their own; what a program costs in processor time says the same on a busy one.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.benchmarks.question import QuestionDetails, question
from tests.agents.misbehaving import completion, serving
from tests.envs.questions import play, tasks_of, verdicts

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
QUESTIONS_PER_S = 150
PROGRAMS_PER_S = 12
PROGRAM_CPU_S = 0.16
"""Two cores give 12 programs a second so much each, and a little is left for whoever asks."""


def test_questions_a_second(tmp_path: Path) -> None:
    grade = "envs.language.mmlu.letters:grade"
    tasks = [
        question(
            "q",
            f"q/{n}",
            "q",
            f"Question {n}?",
            grade,
            "A",
            QuestionDetails(shots="Worked. " * 800),
        )
        for n in range(1500)
    ]
    with serving(lambda asked: completion("A")) as server:
        policy = OpenAIPolicy(server.url, "toy")
        started = time.monotonic()
        found = verdicts(play(tasks, policy, tmp_path, in_flight=32))
        rate = len(tasks) / (time.monotonic() - started)
        policy.close()
    assert all(found.values())
    print(f"{rate:.0f} questions/s")
    assert rate >= QUESTIONS_PER_S


@pytest.mark.skipif(not (DATA / "bench/mbpp").is_dir(), reason="needs HumanEval and MBPP beneath LEMUR_DATA")
@pytest.mark.parametrize(("benchmark", "least"), [("humaneval", 164), ("mbpp", 250)])
def test_programs_a_second(benchmark: str, least: int, tmp_path: Path) -> None:
    """Golds said by an endpoint over HTTP; what the endpoint takes itself is part of the figures."""
    hear, say = multiprocessing.get_context("spawn").Pipe(duplex=False)
    cpu_s = _cpu_s(_play_over_http, benchmark, tmp_path, say)
    number, right, wall_s, spun_s = hear.recv()
    rate = number / wall_s
    print(f"{benchmark}: {rate:.1f} programs/s, {number} in {wall_s:.1f} s; {cpu_s / number:.3f} CPU s each in all")
    print(f"this host meanwhile: {spun_s:.1f} s of {(os.cpu_count() or 1) * wall_s:.1f} s of its processors in use")
    assert number == right >= least
    assert rate >= PROGRAMS_PER_S


@pytest.mark.skipif(not (DATA / "bench/mbpp").is_dir(), reason="needs MBPP beneath LEMUR_DATA")
def test_processor_time_of_a_program(tmp_path: Path) -> None:
    few, many = 20, 140
    for number in (few, many):
        (tmp_path / str(number)).mkdir()
    used = {number: _cpu_s(_play_some, number, tmp_path / str(number)) for number in (few, many)}
    each = (used[many] - used[few]) / (many - few)
    print(f"{each:.3f} CPU s a program, user and system, of all processes")
    assert each <= PROGRAM_CPU_S


def _cpu_s(action: Callable[..., None], *arguments: object) -> float:
    """Of a process that does so, with all that it starts: it waits for its sandboxes when it ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = multiprocessing.get_context("spawn").Process(target=action, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _play_some(number: int, folder: Path) -> None:
    assert all(verdicts(play(tasks_of("mbpp", DATA)[:number], ExpertPolicy(), folder, in_flight=4)).values())


def _play_over_http(benchmark: str, folder: Path, say: Connection) -> None:
    tasks = tasks_of(benchmark, DATA)
    (folder / "warm").mkdir()
    play(tasks[:8], ExpertPolicy(), folder / "warm")
    golds = {_asked(task.options): task.options["gold"] for task in tasks}
    with serving(lambda asked: completion(golds[asked["messages"][-1]["content"]])) as server:
        policy = OpenAIPolicy(server.url, "toy")
        started, spun_s = time.monotonic(), _in_use_s()
        found = verdicts(play(tasks, policy, folder, in_flight=4))
        say.send((len(tasks), sum(found.values()), time.monotonic() - started, _in_use_s() - spun_s))
        policy.close()


def _asked(options: Mapping[str, Any]) -> str:
    """What a model is asked last."""
    return str(options["messages"][-1]["content"] if "messages" in options else options["prompt"])


def _in_use_s() -> float:
    """Seconds of all processors of this machine that somebody used."""
    spent = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(spent) - spent[3] - spent[4]) / os.sysconf("SC_CLK_TCK")
