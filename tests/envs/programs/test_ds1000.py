"""DS-1000: golds pass, wrong solutions fail; what of a reply is the solution; what an environment lacks."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs.programs.ds1000 import environment, program
from envs.programs.ds1000.benchmark import BENCHMARKS, Ds1000Options, by_library
from envs.programs.ds1000.make_environment import main as make
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.benchmarks.rows import read_rows
from tests.attacks.arena import ready as engine_ready
from tests.envs.programs.ds1000_items import METADATA, PROMPT, brought, item, libraries_of_image, the_image, with_numpy
from tests.envs.questions import Says, golds, play, tasks_of, verdicts

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
ITEMS = DATA / "bench/ds1000_format/items.jsonl.gz"
ENVIRONMENT = os.environ.get("LEMUR_DS1000", "") or libraries_of_image()
needs_items = pytest.mark.skipif(not ITEMS.is_file(), reason="needs items in DS-1000's form beneath LEMUR_DATA")
ready = [name for name in environment.LIBRARIES if environment.lacking(ENVIRONMENT, [name]) is None]
needs_environment = pytest.mark.skipif(
    not ready,
    reason=f"needs DS-1000's libraries: {environment.COMMAND}, LEMUR_DS1000=FOLDER, or the image of "
    "cluster/images/build.sh ds1000 in a Docker engine of this machine",
)


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    return with_numpy(tmp_path / "environment")


def the_task(folder: Path, stand_in: Path, **other: Any) -> Task:
    (task,) = tasks_of("ds1000", brought(folder, item()), environment=str(stand_in), **other)
    return task


@needs_items
@needs_environment
@pytest.mark.parametrize(
    ("libraries", "backend"),
    [
        (ready[:1], "bwrap"),
        pytest.param(ready, "bwrap", marks=pytest.mark.slow),
        pytest.param(ready, "docker", marks=[pytest.mark.slow, pytest.mark.docker]),
    ],
)
def test_golds_of_every_library_pass_and_known_wrong_solutions_fail(
    libraries: list[str], backend: str, tmp_path: Path
) -> None:
    engine_ready(backend)
    rows = {f"ds1000/{row['metadata']['problem_id']}": row for row in read_rows(ITEMS)}
    tasks = tasks_of("ds1000", DATA, environment=ENVIRONMENT, libraries=",".join(libraries), sandbox=backend)
    assert {task.id for task in tasks} == {n for n, row in rows.items() if row["metadata"]["library"] in libraries}
    assert all(golds(tasks, tmp_path).values())
    wrong = [(task, said) for task in tasks for said in rows[task.id]["known_wrong"]]
    assert not any(program.grade(said, task.options).score for task, said in wrong)


@pytest.mark.slow
@pytest.mark.skipif("Tensorflow" not in ready, reason="needs DS-1000's environment with tensorflow")
@pytest.mark.parametrize("backend", ["bwrap", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_gold_that_uses_tensorflow_passes(backend: str, tmp_path: Path) -> None:
    engine_ready(backend)
    metadata = {"problem_id": 1, "library": "Tensorflow"}
    context = (
        "import tensorflow as tf\ndef test_execution(solution):\n    env = {'x': tf.constant([1, 2])}\n"
        "    exec(solution, env)\n    assert env['result'].numpy().tolist() == [2, 4]\n"
    )
    row = item(reference_code="result = x * 2", metadata=metadata, code_context=context)
    tasks = tasks_of("ds1000", brought(tmp_path, row), environment=ENVIRONMENT, sandbox=backend)
    assert golds(tasks, tmp_path) == {"ds1000/1": True}
    assert program.grade("result = x * 3", tasks[0].options).score == 0


def test_tensorflow_is_imported_where_the_system_has_no_distutils(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    for name, text in {
        "distutils": "",  # as Debian leaves it: a package without its modules
        "setuptools": "import sys, types; sys.modules['distutils.spawn'] = types.ModuleType('distutils.spawn')",
        "tensorflow": "import distutils.spawn",
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"{text}\n")
    about = folder / "tensorflow_cpu-2.16.1.dist-info/METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.16.1\n")
    context = "import tensorflow\ndef test_execution(solution):\n    assert eval(solution) == 2\n"
    row = item(reference_code="1 + 1", metadata={"problem_id": 1, "library": "Tensorflow"}, code_context=context)
    (task,) = tasks_of("ds1000", brought(tmp_path, row), environment=str(folder))
    graded = program.grade("1 + 1", task.options)
    assert (graded.score, graded.note) == (1.0, "")


def test_modules_that_are_imported_when_an_attribute_is_asked_for_stay_unimported(tmp_path: Path) -> None:
    """As ``dask`` in xgboost, which is not installed with it."""
    folder = with_numpy(tmp_path / "environment")
    lazy = """import importlib, types
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        return getattr(importlib.import_module("a_package_that_is_not_there"), name)
late = Lazy("late")
class Holder:
    late = late
    @classmethod
    def of_class(cls): return 2
"""
    (folder / "lazily.py").write_text(lazy)
    context = "import lazily\ndef test_execution(solution):\n    scope = {}\n    exec(solution, scope)\n"
    context += "    assert scope['result'] == lazily.Holder.of_class() == 2\n"
    (task,) = tasks_of(
        "ds1000", brought(tmp_path, item(reference_code="result = 2", code_context=context)), environment=str(folder)
    )
    right = program.grade("result = 2", task.options)
    assert (right.score, right.note) == (1.0, "")
    changed = "import lazily\nlazily.Holder.of_class.__func__.__code__ = (lambda cls: 3).__code__\nresult = 3"
    assert program.grade(changed, task.options).score == 0


def test_a_solution_is_judged_by_what_it_does_and_how_it_is_written(tmp_path: Path, stand_in: Path) -> None:
    task = the_task(tmp_path, stand_in)
    assert (task.id, task.category) == ("ds1000/7", "Numpy")
    assert golds([task], tmp_path) == {"ds1000/7": True}
    for said, why in {
        "    return 3 * x": "AssertionError",
        "    while False: pass\n    return 2 * x": "AssertionError",  # right, but not written as asked
        "return 2 * x": "IndentationError",
        "    import os; os._exit(0)": "ended",
        "    raise SystemExit(0)": "SystemExit",
        "    import numpy_that_is_not_there": "ModuleNotFoundError",
        "    print('passed'); return None": "AssertionError",
    }.items():
        graded = program.grade(said, task.options)
        assert (graded.score, why in graded.note) == (0.0, True), (said, graded.note)


def test_a_solution_without_an_end_or_beyond_memory_ends_as_its_own_fault(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = the_task(tmp_path, stand_in)
    greedy = program.grade("    y = bytearray(6 << 30)\n    return 2 * x", task.options)
    assert (greedy.score, "MemoryError" in greedy.note or greedy.note == "ended") == (0.0, True), greedy.note
    monkeypatch.setattr(program, "TIME_S", 2.0)
    endless = program.grade("    for _ in iter(int, 1): pass", task.options)
    assert (endless.score, endless.note) == (0.0, "timed out after 2 s")


@pytest.mark.parametrize(
    "reply",
    [
        "    return 2 * x",
        "    return 2 * x\n</code>\nEND SOLUTION",
        "Sure:\n<code>\n    return 2 * x\n</code>\nThat doubles it. <code>x</code>",
        "```python\n    return 2 * x\n```",
        "<code>\n```python\n    return 2 * x\n```\n</code>",
        f"{PROMPT}    return 2 * x\n</code>",
        "import matplotlib\n# SOLUTION START\n    return 2 * x\n# SOLUTION END\nplt.show()",
    ],
)
def test_what_of_a_reply_is_the_solution(reply: str) -> None:
    assert program.solution_of(reply).strip("\n") == "    return 2 * x"


def test_the_prompt_is_the_datas_own_and_a_chat_models_reply_may_be_begun_for_it(
    tmp_path: Path, stand_in: Path
) -> None:
    base = the_task(tmp_path, stand_in, form="base").options
    assert (base["prompt"], base["raw"], tuple(base["stop"])) == (PROMPT, True, program.STOPS)
    chat = the_task(tmp_path, stand_in).options
    assert chat["prompt"].endswith(PROMPT)
    assert "stop" not in chat
    assert the_task(tmp_path, stand_in, prefill=True).options["prefill"] == "BEGIN SOLUTION\n<code>\n"


INSERTION = {
    "code": f"{PROMPT}[insert]\n</code>\nEND SOLUTION\n<code>\nprint(f(x))\n</code>\n",
    "function": "Problem:\nDouble x. A list [insert] stays.\n\nA:\n<code>\ndef f(x):\n    ### BEGIN SOLUTION\n"
    "    [insert]\n    ### END SOLUTION\n    return result\n</code>\n",
    "plot": "x = 1\n# double x\n# SOLUTION START\n[insert]\n# SOLUTION END\n",
}
"""Prompts of the older form: the solution stands before something."""


@pytest.mark.parametrize(
    ("form", "asked", "reply"),
    [
        ("code", PROMPT, "    return 2 * x\n</code>\nEND SOLUTION\n<code>\nprint(f(x))\n</code>"),
        (
            "function",
            INSERTION["function"].partition("    [insert]")[0],
            "    return 2 * x\n    ### END SOLUTION\n    x = 7",
        ),
        ("plot", "x = 1\n# double x\n# SOLUTION START\n", "    return 2 * x\n# SOLUTION END\nplt.show()"),
    ],
)
def test_a_hole_is_filled_with_the_whole_prompt_in_sight_or_gone_on_from(
    form: str, asked: str, reply: str, tmp_path: Path, stand_in: Path
) -> None:
    brought(tmp_path, item(prompt=INSERTION[form]), item(8))
    base, plain = tasks_of("ds1000", tmp_path, environment=str(stand_in), form="base")
    assert (base.options["prompt"], plain.options["prompt"]) == (asked, PROMPT)
    assert verdicts(play([base], Says({base.id: reply}), tmp_path)) == {base.id: True}
    assert "behind" not in plain.options["reference"]
    begun, _ = tasks_of("ds1000", tmp_path, environment=str(stand_in), prefill=True)
    assert begun.options["prompt"].endswith(INSERTION[form])
    assert asked.endswith(begun.options["prefill"])
    assert begun.options["prefill"].startswith(program.BEGINS)
    for shape, how in (("base", "asked up to it"), ("chat", "shown whole")):
        options = Ds1000Options(environment=str(stand_in), form=shape)  # type: ignore[arg-type]
        said = BENCHMARKS[""].details.departures(options, EvaluationRequest(tmp_path), [begun, plain])
        assert said[0].startswith(f"1 prompts of the older form, with [insert] in the solution's place, {how}")


def test_rows_of_the_published_file_play_and_rewritings_of_one_question_are_a_cluster(
    tmp_path: Path, stand_in: Path
) -> None:
    kinds = ("Origin", "Surface", "Difficult-Rewrite", "Origin")
    rows = [
        item(n, metadata={**METADATA, "problem_id": n, "library_problem_id": n, "perturbation_type": kind}
             | {"perturbation_origin_id": 3 if kind == "Origin" else 0})
        for n, kind in enumerate(kinds)
    ]  # fmt: skip
    rows.append(item(4, metadata={**METADATA, "problem_id": 4, "library": "Scipy"}))
    rows.append(item(5, metadata={"problem_id": 5, "library": "Numpy"}))
    tasks = tasks_of("ds1000", brought(tmp_path, *rows), environment=str(stand_in))
    clusters = ["Numpy 3", "Numpy 0", "Numpy 0", "Numpy 3", "Scipy 0", ""]
    assert [task.cluster for task in tasks] == clusters
    assert set(golds(tasks[:2], tmp_path).values()) == {True}
    (tmp_path / "ds1000/ds1000.jsonl").rename(tmp_path / "ds1000/test.jsonl")  # as the Hub names it
    assert [task.cluster for task in tasks_of("ds1000", tmp_path, environment=str(stand_in))] == clusters


def test_libraries_are_counted_apart(tmp_path: Path, stand_in: Path) -> None:
    other = item(8, reference_code="    return 2 + x")
    tasks = tasks_of("ds1000", brought(tmp_path, item(), other), environment=str(stand_in))
    played = play(tasks, Says({task.id: task.options["gold"] for task in tasks}), tmp_path)
    assert verdicts(played) == {"ds1000/7": True, "ds1000/8": False}
    assert by_library(played) == {"mean_of_library": {"Numpy": 0.5}}
    assert tasks_of("ds1000", tmp_path, libraries="Scipy,Pytorch") == []
    with pytest.raises(ValueError, match="Torch: expected some of Pandas, Numpy"):
        Ds1000Options(libraries="Torch")


def test_what_the_environment_lacks_is_said_before_with_the_command(tmp_path: Path, stand_in: Path) -> None:
    benchmark, asked = BENCHMARKS[""], EvaluationRequest(brought(tmp_path, item()))
    absent = Ds1000Options(environment=str(tmp_path / "absent"))
    (said,) = missing_requirements(benchmark.requirements(absent, asked))
    assert f"absent is not there: {environment.COMMAND} {tmp_path}/absent makes it" in said
    some = replace(absent, environment=str(stand_in), libraries="Numpy,Pytorch,Scipy")
    (said,) = missing_requirements(benchmark.requirements(some, asked))
    assert "lacks what Pytorch, Scipy need:" in said
    assert missing_requirements(benchmark.requirements(replace(some, libraries="Numpy"), asked)) == []
    assert list(benchmark.details.departures(some, asked, [])) == ["numpy 1.21.6 instead of 1.26.4"]


def test_a_library_that_is_not_there_is_never_the_solutions_fault(tmp_path: Path, stand_in: Path) -> None:
    task = the_task(tmp_path, stand_in)
    gone = {**task.options, "reference": {**task.options["reference"], "environment": str(tmp_path / "absent")}}
    with pytest.raises(ValueError, match="is not there"):
        program.grade("    return 2 * x", gone)


def test_a_virtual_environment_may_be_named_and_is_no_part_of_a_score(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / f"python{environment.VERSION}" / "site-packages"
    packages.mkdir(parents=True)
    assert environment.folder_of(str(tmp_path)) == packages
    options = Ds1000Options(environment=str(tmp_path))
    assert "environment" not in BENCHMARKS[""].identity_of(options, EvaluationRequest(), "auto")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "x"}, "row 1: no reference_code, code_context, metadata"),
        (item(metadata={"library": "Rust"}), "expected one of Pandas"),
        (item(metadata="{}"), "metadata '{}'"),
    ],
)
def test_a_row_of_another_form_is_named(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        tasks_of("ds1000", brought(tmp_path, row))


@pytest.mark.slow
def test_pip_that_fails_leaves_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert make([str(tmp_path / "made")]) == 1
    assert "pip installs no gensim==4.3.2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.docker
@needs_items
def test_golds_pass_in_the_image_for_workers() -> None:
    engine_ready("docker")
    image = the_image()
    if not image:
        pytest.skip("the image is not built: sudo cluster/images/build.sh ds1000")
    # A container in which bubblewrap may make its namespaces; as in a cluster everything runs as the image's user.
    command = ["docker", "run", "--rm", "--privileged", "--network", "none", "-v", f"{DATA.absolute()}:/data:ro", image]
    command += ["python", "jobs/agent_eval.py", "--check-gold", "--benchmark", "ds1000", "--data", "/data"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "6 golds, 6 score 1" in done.stdout + done.stderr
