"""MultiPL-E: recorded programs get the recorded verdicts, right bodies pass, wrong ones and bombs do not."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from envs.programs.multipl_e.benchmark import MultiplEOptions
from envs.programs.multipl_e.program import IMAGE, program_of
from envs.programs.multipl_e.toolchains import TOOLCHAINS
from lemur_ray.agents.trajectory import Blame, Task
from lemur_ray.benchmarks import sandboxed
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.benchmarks.rows import read_rows
from lemur_ray.benchmarks.sandboxed import Sandboxed, build_command, missing_programs
from lemur_ray.doctor.machine import Check
from lemur_ray.sandbox.backends import docker_image
from tests.attacks.arena import ready
from tests.envs.programs.failing_programs import BODIES as WRONG
from tests.envs.programs.translated_solutions import BODIES as RIGHT
from tests.envs.programs.translated_solutions import completion, ended
from tests.envs.questions import Says, play, tasks_of, verdicts

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/multipl_e").is_dir(), reason="needs MultiPL-E beneath LEMUR_DATA")
TRANSLATED = sorted(RIGHT)
FORMS = Path(__file__).parents[2] / "grading/written_replies"
RECORDED = {"js": 77, "sh": 35, "php": 71}
"""How many of the recorded programs pass."""


SLOW_ONES = ("java", "ts")
"""Whose compiler takes seconds to start."""


def with_tools(language: str, backend: str = "bwrap", build: bool = False) -> None:
    """Skip, with what is to be done, where a language cannot be had."""
    absent = missing_programs(Sandboxed(), TOOLCHAINS[language].programs) if backend == "bwrap" else {}
    if absent:
        pytest.skip(
            f"no {', '.join(absent)} on this machine: apt-get install -y {' '.join(sorted({*absent.values()}))}"
        )
    if backend == "docker":
        ready("docker")
        if not build and docker_image.existing(IMAGE) is None:
            pytest.skip(f"the image is not built: {build_command(IMAGE)}")
        docker_image.ensure(IMAGE)


def add(language: str, backend: str = "bwrap") -> Task:
    every = tasks_of(f"multipl_e/{language}", DATA, sandbox=backend)
    return next(task for task in every if task.id.endswith("/HumanEval_53_add"))


@needs_data
@pytest.mark.parametrize(
    "language", [pytest.param(one, marks=pytest.mark.slow if one in SLOW_ONES else ()) for one in TRANSLATED]
)
def test_a_right_body_passes_and_a_wrong_one_fails(language: str, tmp_path: Path) -> None:
    with_tools(language)
    task, wrong = add(language), ended(language, WRONG[language]["another result"])
    assert verdicts(play([task], Says({task.id: completion(language, "HumanEval_53_add")}), tmp_path)) == {
        task.id: True
    }
    (tmp_path / "wrong").mkdir()
    assert verdicts(play([task], Says({task.id: wrong}), tmp_path / "wrong")) == {task.id: False}


@needs_data
@pytest.mark.parametrize(
    ("language", "passing", "every"),
    [
        *[(language, passing, 32) for language, passing in RECORDED.items() if language not in SLOW_ONES],
        *[pytest.param(*one, 1, marks=pytest.mark.sweep) for one in RECORDED.items() if one[0] not in SLOW_ONES],
        pytest.param("java", 61, 16, marks=pytest.mark.slow),
        pytest.param("java", 61, 1, marks=pytest.mark.sweep),
    ],
)
def test_recorded_programs_get_the_recorded_verdicts(language: str, passing: int, every: int, tmp_path: Path) -> None:
    with_tools(language)
    rows = list(read_rows(DATA / f"bench/multipl_e/samples_qwen2.5-coder-1.5b_{language}.jsonl.gz"))
    recorded = {f"multipl_e/{language}/{row['task_id']}": row for row in rows}
    assert sum(row["passed"] for row in rows) == passing
    tasks = [task for task in tasks_of(f"multipl_e/{language}", DATA) if task.id in recorded][every // 8 :: every]
    said = {task: row["program"] for task, row in recorded.items()}
    found = verdicts(play(tasks, Says(said), tmp_path, starved=5))
    # What was recorded where bc is absent, or with another PHP, may pass here; nothing that passed there fails.
    more = [task for task, right in found.items() if right and not recorded[task]["passed"]]
    assert not [task for task, right in found.items() if recorded[task]["passed"] and not right]
    assert len(more) <= {"js": 0, "sh": 4, "php": 1, "java": 0}[language], more


@needs_data
def test_a_template_without_an_end_fails_and_leaves_the_next_program_alone(tmp_path: Path) -> None:
    with_tools("cpp")
    task = add("cpp")
    bomb = ended("cpp", WRONG["cpp"]["a bomb for the compiler"])
    (tmp_path / "next").mkdir()
    assert verdicts(play([task], Says({task.id: bomb}), tmp_path)) == {task.id: False}
    right = completion("cpp", "HumanEval_53_add")
    assert verdicts(play([task], Says({task.id: right}), tmp_path / "next")) == {task.id: True}


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("language", TRANSLATED)
def test_known_solutions_pass(language: str, tmp_path: Path) -> None:
    with_tools(language)
    assert all_pass(language, "bwrap", tmp_path)


@needs_data
@pytest.mark.docker
@pytest.mark.parametrize(
    "language",
    [pytest.param(one, marks=pytest.mark.slow if one == "php" else pytest.mark.sweep) for one in RIGHT],
)
def test_known_solutions_pass_in_the_image_with_all_tool_chains(
    language: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with_tools(language, "docker", build=request.node.get_closest_marker("sweep") is not None)
    assert all_pass(language, "docker", tmp_path)


def all_pass(language: str, backend: str, folder: Path) -> bool:
    tasks = {task.id.rpartition("/")[2]: task for task in tasks_of(f"multipl_e/{language}", DATA, sandbox=backend)}
    said = {tasks[name].id: completion(language, name) for name in RIGHT[language]}
    found = verdicts(play([tasks[name] for name in RIGHT[language]], Says(said), folder, in_flight=2, starved=5))
    assert found == dict.fromkeys(said, True)
    return len(found) == 10


@needs_data
@pytest.mark.parametrize(
    "language",
    [pytest.param(one, marks=pytest.mark.slow if one == "php" else pytest.mark.sweep) for one in TRANSLATED],
)
def test_every_way_to_fail_is_a_score_of_the_policys(language: str, tmp_path: Path) -> None:
    with_tools(language)
    of = add(language)
    right = completion(language, "HumanEval_53_add")
    said = {way: ended(language, body) for way, body in WRONG[language].items()} | {"right": right}
    tasks = [replace(of, id=f"{of.id}/{way}") for way in said]
    began = time.monotonic()
    episodes = play(tasks, Says({f"{of.id}/{way}": reply for way, reply in said.items()}), tmp_path, starved=5)
    assert verdicts(episodes) == {task.id: task.id.endswith("/right") for task in tasks}
    assert {episode.outcome.blame for episode in episodes} == {Blame.POLICY}
    tries = len(episodes) + sum(len(episode.retried) for episode in episodes)
    limits = TOOLCHAINS[language]
    assert time.monotonic() - began < tries * (limits.compile_s * (len(limits.steps) - 1) + limits.run_s)


@needs_data
def test_leaving_before_the_tests_or_quoting_them_passes_nothing(tmp_path: Path) -> None:
    with_tools("sh")
    task = add("sh")
    tests = task.options["reference"]["tests"].strip()
    said = {
        "leaves": "    exit 0\n}\n",
        "leaves, whole": f"exit 0\n{tests}",
        "quotes": f"exit 0\n: <<'X'\n{tests}\nX",
        "shows itself": '    cat "$0" >&2; cat "$0"; exit 0\n}\n',
        "right": completion("sh", "HumanEval_53_add"),
    }
    tasks = [replace(task, id=way) for way in said]
    found = verdicts(play(tasks, Says(said), tmp_path, starved=5))
    assert found == {way: way == "right" for way in said}


def test_what_a_language_lacks_is_told_before_the_first_reply_with_its_package(tmp_path: Path) -> None:
    for language, tools in TOOLCHAINS.items():
        assert missing_programs(Sandboxed(), tools.programs, str(tmp_path)) == tools.programs, language
    wanted = {package for tools in TOOLCHAINS.values() for package in tools.programs.values()}
    assert wanted <= set(docker_image.packages(IMAGE))
    assert {"bash", "python3"} <= wanted | set(docker_image.packages())


def test_an_image_that_is_not_built_is_told_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sandboxed._CHECKS, "docker", lambda machine: Check("docker", "ok", "engine 28", ""))
    monkeypatch.setattr(docker_image, "existing", lambda image="sandbox": None)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent")  # what was found under another one says nothing here
    said = missing_requirements(
        find("multipl_e/php").requirements(MultiplEOptions(sandbox="docker"), EvaluationRequest(data=DATA))
    )
    assert "sandbox docker: no image multipl_e: python -m lemur_ray.sandbox.docker_image multipl_e" in said


def test_a_method_that_is_said_alone_is_closed_where_it_ends() -> None:
    prompt = "class Problem {\n    // doc\n    public static long f(long x) {\n"
    asked = {"prompt": prompt, "tests": "    }\n    static void g() {}\n}\n", "stops": ["\n    }\n"]}
    right = f"{prompt}        return x;\n    }}\n    static void g() {{}}\n}}\n"
    for reply in (
        "        return x;\n    }",
        "        return x;\n    }\n}\n",
        "```java\npublic static long f(long x) {\n    return x;\n}\n```",
        "```java\n    public static long f(long x) {\n        return x;\n    }\n```",
        f"```java\nimport java.util.*;\n{prompt}        return x;\n    }}\n}}\n```",
    ):
        assert program_of(reply, asked) == right


def test_the_program_of_a_reply() -> None:
    asked = {"prompt": "// doc\nint f(int x) {\n", "tests": "}\nint main() {}\n", "stops": ["\n}"]}
    right = "// doc\nint f(int x) {\n    return x;\n}\nint main() {}\n"
    assert program_of("    return x;\n}\nint g() {}", asked) == right
    assert program_of("```cpp\n#include <a>\nint f(int x) {\n    return x;\n}\n```", asked) == right
    assert program_of(right, asked) == right


@needs_data
@pytest.mark.slow
def test_programs_are_read_from_replies_of_every_form(tmp_path: Path) -> None:
    replies = yaml.safe_load((FORMS / "multipl_e.yaml").read_text())
    there = {
        language: rows
        for language, rows in replies.items()
        if not missing_programs(Sandboxed(), TOOLCHAINS[language].programs)
    }
    tasks = {language: add(language) for language in there}
    said = {f"{language}/{n}": reply for language, rows in there.items() for n, reply in enumerate(rows)}
    played = play(
        [replace(tasks[name.partition("/")[0]], id=name) for name in said], Says(said), tmp_path, in_flight=2, starved=5
    )
    assert [(e.key.task, e.trajectory.steps[-1].observation) for e in played if e.score != 1] == []
    strict = {e.key.task for e in played if e.scores["strict"] == 1}
    assert strict == {f"{language}/0" for language in there}, "the first of each continues the prompt"
