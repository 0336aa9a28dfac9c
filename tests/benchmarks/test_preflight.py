"""Before anything is played: each missing thing is really missing here, all are in one list, and nothing is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lemur_ray.benchmarks import sandboxed
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.data_sets import files_to_fetch
from lemur_ray.benchmarks.discovery import find, names
from lemur_ray.benchmarks.listing import WIDTH, BenchmarkStatus, benchmark_statuses, status_lines
from lemur_ray.benchmarks.needs import Problem, ProblemKind, Requirement, missing_requirements, requirement_of
from lemur_ray.benchmarks.sandboxed import Sandboxed, missing_programs, missing_programs_departure, sandbox_requirement
from lemur_ray.outside_data.source import Source
from lemur_ray.rollout.evaluation_config import EvalConfig
from tests.benchmarks.conftest import Endpoint, Run
from tests.envs.webarena.small_site import record


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nothing is on the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_everything_that_is_missing_is_in_one_list(run: Run, no_programs: None, tmp_path: Path) -> None:
    code, said = run(
        *("--benchmark", "mint/alfworld", "--data", str(tmp_path / "empty"), "--policy", "openai:http://127.0.0.1:9/v1"),
        *("--policy-key-env", "NO_SUCH_KEY", "--wikipedia", f"index:{tmp_path}/none", "--out", str(tmp_path / "out")),
        *("--feedback", "textual", "--teacher", "openai:http://127.0.0.1:7/v1#t", "--teacher-key-env", "NOR_THIS"),
    )  # fmt: skip
    assert code == 1
    assert said[0] == "agent_eval: mint/alfworld is not begun:"
    told = "\n".join(said[1:])
    for what in (
        "--policy-key-env NO_SUCH_KEY",
        "--teacher-key-env NOR_THIS",
        "nothing answers at http://127.0.0.1:9/v1",
        "nothing answers at http://127.0.0.1:7/v1",
        "Fetch it with: python jobs/fetch_data.py mint/alfworld --data",
    ):
        assert what in told
    assert "sandbox bwrap: not installed" in told
    assert "apt-get install -y bubblewrap" in told
    assert "no such index; build it with jobs/index_wikipedia.py" in told
    assert told.count("mint/tasks/alfworld/valid_unseen_134_games.tar.gz: not there") == 1
    assert not (tmp_path / "out").exists()


def test_one_thing_that_is_missing_is_one_line(run: Run, data_dir: Path, no_programs: None) -> None:
    code, said = run("--benchmark", "intercode/python", "--data", str(data_dir), "--policy", "expert")
    assert (code, len(said)) == (1, 1)
    assert "apt-get install -y bubblewrap" in said[0]


def test_a_policy_that_cannot_play_stands_among_what_is_missing(run: Run, tmp_path: Path) -> None:
    code, said = run("--benchmark", "mint/math", "--data", str(tmp_path), "--policy", "expert")
    assert code == 1
    assert "mint/math has neither expert nor actions to draw" in said[1]
    assert "math.test_prompts.jsonl.gz: not there" in said[2]


def test_a_step_that_is_shorter_than_a_benchmarks_own_limits_is_refused(
    run: Run, data_dir: Path, endpoint: Callable[..., Endpoint]
) -> None:
    served = endpoint({"id": "m", "max_model_len": 4096})
    argv = ("--benchmark", "intercode/sql", "--data", str(data_dir), "--policy", served.policy, "--step-s")
    code, said = run(*argv, "10")
    assert code == 1
    assert "--step-s 10: a policy may keep a step of intercode/sql busy for up to 20 s: give --step-s 20 or" in said[-1]
    with pytest.raises(pytest.fail.Exception, match="something was started"):
        run(*argv, "20")


def test_chosen_tasks_that_cannot_be_played_here_end_an_evaluation_before_it_begins(
    run: Run, tmp_path: Path, endpoint: Callable[..., Endpoint]
) -> None:
    tasks, sites = tmp_path / "tasks.json", tmp_path / "sites.json"
    tasks.write_text(json.dumps([record(0), {**record(1), "sites": ["map"]}]))
    sites.write_text(json.dumps({"sets": [{"name": "a", "urls": {"SHOPPING": "http://127.0.0.1:9"}}]}))
    served = endpoint({"id": "m", "max_model_len": 4096})
    argv = ("--benchmark", "webarena/webarena", "--sites-file", str(sites), "--task-file", str(tasks))
    for chosen, num_lines in {"0:2": 1, "0": 0}.items():
        code, said = run(*argv, "--policy", served.policy, "--tasks", chosen)
        assert code == 1
        assert sum("1 of 2 tasks have to do with MAP" in line for line in said) == num_lines
        assert any("http://127.0.0.1:9: start them" in line for line in said)


def test_no_benchmark_needs_more_for_a_step_than_there_is_by_default_or_less_than_its_own_limits() -> None:
    from envs.intercode.python_env import TIME_S as CELL_S
    from envs.intercode.shell.bash_env import LIMITS
    from envs.mint.python_tool import _SLACK_S, TIME_S
    from envs.programs.multipl_e.toolchains import TOOLCHAINS
    from envs.programs.robocodegen.results import TOTAL_S
    from envs.programs.spider.execution import TOTAL_S as QUERIES_S
    from lemur_ray.grading import python_tests as tested
    from lemur_ray.sandbox.python_repl import HARD_S

    program_s = tested.PATIENCE * tested.TIME_S + tested.SLACK_S + tested._TESTER_S
    own = {
        "intercode/bash": LIMITS.time_s,
        "intercode/python": CELL_S + HARD_S + program_s,
        "mint/mbpp": max(TIME_S + _SLACK_S, program_s),
        "mbpp": program_s,
        "spider": QUERIES_S,
        "robocodegen": TOTAL_S,
        **{f"multipl_e/{name}": (len(t.steps) - 1) * t.compile_s + t.run_s for name, t in TOOLCHAINS.items()},
    }
    for name in names():
        assert own.get(name, 0) < find(name).min_step_s <= EvalConfig(None, "").step_s


def test_data_that_is_not_said_where_is_said_once(run: Run) -> None:
    code, said = run("--benchmark", "intercode/bash", "--policy", "expert")
    assert (code, len(said)) == (1, 1)
    assert "--data DIR or LEMUR_DATA" in said[0]


def test_a_database_server_that_is_not_there_is_missing(data_dir: Path) -> None:
    sql = find("intercode/sql")
    options = sql.options(engine="mysql://root@127.0.0.1:9")
    (said,) = missing_requirements(sql.needs(options, EvaluationRequest(data_dir)))
    assert "127.0.0.1:9" in said or "pymysql" in said.lower()


def test_recorded_submissions_are_graded_without_a_sandbox(data_dir: Path, no_programs: None, tmp_path: Path) -> None:
    graded = EvaluationRequest(data_dir, recording=tmp_path / "log.json", mode="grading")
    for name in ("intercode/ctf", "mint/math"):
        benchmark = find(name)
        assert missing_requirements(benchmark.needs(benchmark.options(), graded)) == []
        assert any(
            "bubblewrap" in said
            for said in missing_requirements(benchmark.needs(benchmark.options(), EvaluationRequest(data_dir)))
        )


def test_a_look_that_fails_in_any_way_is_something_missing() -> None:
    def broken() -> None:
        raise KeyError("x")

    assert missing_requirements(
        [requirement_of("a", broken), Requirement("b", lambda: None), Requirement("c", lambda: "c is gone")]
    ) == [
        "'x'",
        "c is gone",
    ]
    assert missing_requirements([requirement_of("d", partial(int, "z"))]) == [
        "invalid literal for int() with base 10: 'z'"
    ]


def test_programs_that_the_sandbox_lacks_are_told_with_their_packages(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/gdb").touch(mode=0o755)
    tools = {"gdb": "gdb", "nc": "netcat-openbsd", "mmls": "sleuthkit"}
    assert missing_programs(Sandboxed(), tools, str(root)) == {"nc": "netcat-openbsd", "mmls": "sleuthkit"}
    (said,) = missing_programs_departure(Sandboxed(), tools, str(root))
    assert said == "sandbox without mmls, nc (apt-get install -y netcat-openbsd sleuthkit)"
    assert missing_programs_departure(Sandboxed(), {"gdb": "gdb"}, str(root)) == ()


def test_an_image_of_an_earlier_list_of_packages_is_to_be_built_before_and_not_by_the_first_episode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lemur_ray.doctor.machine import Check
    from lemur_ray.sandbox.backends import docker_image

    check = Check("docker", "ok", "engine 27, sandbox image lemur-sandbox:0123", "")
    monkeypatch.setitem(sandboxed._CHECKS, "docker", lambda machine: check)
    monkeypatch.setattr(docker_image, "existing", lambda image: None)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda *a: pytest.fail("a sandbox was opened"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")  # nobody has looked at that one
    said = sandbox_requirement(Sandboxed("docker")).missing()
    assert said is not None
    assert said.endswith("which is of an earlier list of packages: python -m lemur_ray.sandbox.docker_image")


def test_a_sandbox_is_really_opened() -> None:
    assert sandbox_requirement(Sandboxed()).missing() is None


def test_the_words_of_mint_are_ours_where_no_run_is_at_hand(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mint").mkdir()
    for name in ("tasks", "in_context_examples"):
        (tmp_path / "mint" / name).symlink_to(data_dir / "mint" / name)
    mint = find("mint/gsm8k")
    options = mint.options()
    for data, said in ((tmp_path, 1), (data_dir, 0)):
        tasks = list(mint.load(options, EvaluationRequest(data)))
        assert len(mint.details.departures(options, EvaluationRequest(data), tasks)) == said
        assert tasks[0].options["prompt"] in mint.details.opening(tasks[0])


def test_the_list_has_every_benchmark_and_what_is_missing_on_one_screen(run: Run, tmp_path: Path) -> None:
    code, said = run("--list", "--data", str(tmp_path))
    assert code == 0
    assert set(names()) <= set(_rows(said))
    assert said[0].split() == ["BENCHMARK", "STATE", "DATA", "TO", "FETCH", "TASKS"]
    assert said.index("") < len(_rows(said)) * 0.9, "benchmarks of one family that lack the same share a row"
    assert all(len(line) <= WIDTH for line in said[said.index("") :] if " " in line.strip() and "--accept" not in line)
    assert _rows(said)["alfworld/text"].startswith("ready any")
    assert _rows(said)["alfworld/valid_seen"] == "no data 36 MB, MIT 140, 134"
    assert "15 MB, picoCTF's own terms" in _rows(said)["intercode/ctf"]
    assert not any("unknown" in line for line in said)
    assert run("--list", "--policy", "expert")[0] == 1
    (command,) = [line for line in said if "fetch_data.py benchmarks" in line]
    assert command.split("benchmarks ")[1] == f"--data {tmp_path} --accept ds1000 --accept gpqa --accept intercode"
    assert sum("By hand, 4 files" in line for line in said) == 1


def _rows(lines: Sequence[str]) -> dict[str, str]:
    """The table of the list: name of each benchmark -> the rest of its row, blanks collapsed."""
    rows, name, text = dict[str, str](), "", ""
    for line in lines[1 : lines.index("") if "" in lines else None]:
        name = f"{name}{line.split()[0]}" if line.startswith(" ") else line.split()[0]
        text = " ".join(line.split()[1:]) or text
        family, _, variants = name.rstrip("}").partition("{")
        rows |= {f"{family}{variant}": text for variant in variants.split(",")}
    return rows


def test_a_package_that_cannot_be_imported_is_in_the_list_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lemur_ray.benchmarks.discovery._offered", lambda path: (("broken", "no_such_module"),))
    (line,) = [one for one in benchmark_statuses(None) if one.name == "broken"]
    assert "no_such_module cannot be imported: ModuleNotFoundError" in line.lacks[0]
    assert any("no_such_module" in shown for shown in status_lines([line]))


def test_the_list_says_size_and_licence_of_missing_data_and_one_command_fetches_all_of_it() -> None:
    known = Source("a/one.json", "https://example.org/one.json", "", 2_000_000, "MIT; after others", terms="be kind")
    unknown = Source("a/two.json", "https://example.org/two.json", "", 0, "CC BY 4.0")
    by_hand = Source("a/three.json", "", "", 5, "MIT", by_hand="ask for it")
    here = BenchmarkStatus("a", "7")
    absent = BenchmarkStatus("b/x", "8", ("absent", "no user"), ("data", "user"), (known,), frozenset({"absent"}))
    twin = replace(absent, name="b/y", size="9")
    folder = BenchmarkStatus("c", "9", ("no folder",), ("data",), (known, unknown), frozenset({"no folder"}))
    manual = BenchmarkStatus("d", "9", ("by hand",), ("data",), (by_hand,), frozenset({"by hand"}))
    lines = list(status_lines([here, absent, twin, folder, manual]))
    rows = _rows(lines)
    assert rows["a"] == "ready 7"
    assert rows["b/x"] == rows["b/y"] == "no data, user 2.0 MB, MIT 8, 9"
    assert rows["c"] == "no data size unknown, MIT, CC BY 4.0 9"
    assert lines[lines.index("") + 1 :] == [
        "The data of 4 benchmarks is not there (2.0 MB and 1 files of unknown size). One command fetches it:",
        "  python jobs/fetch_data.py benchmarks --accept b --accept c",
        "--accept accepts the terms that `python jobs/fetch_data.py --list` shows. "
        "Data elsewhere: give --data or LEMUR_DATA.",
        "- By hand, 1 files (5 B) such as a/three.json: ask for it",
        "- b/x, b/y: no user",
    ]


@pytest.mark.parametrize(
    ("problem", "paths"),
    [
        (Problem("no folder", ProblemKind.NO_DATA_FOLDER), ["one.json.gz", "two.json"]),
        (Problem("none of them", ProblemKind.MISSING_FILES, ["one.json", "1.json"]), ["one.json.gz", "two.json"]),
        (Problem("not there. By hand", ProblemKind.MISSING_FILES, ["three.json"]), ["three.json"]),
        (Problem("no sandbox for one.json"), None),
    ],
)
def test_a_problem_is_about_the_files_that_it_names(problem: str, paths: list[str] | None, tmp_path: Path) -> None:
    sources = [Source(name, "https://example.org", "", 1, "MIT") for name in ("one.json.gz", "two.json", "here.json")]
    sources.append(Source("three.json", "", "", 5, "MIT", by_hand="ask for it"))
    (tmp_path / "here.json").touch()
    benchmark = replace(find("bfcl"), sources=tuple(sources))
    found = files_to_fetch(benchmark, tmp_path, [problem])
    assert {about: [one.path for one in files] for about, files in found.items()} == ({problem: paths} if paths else {})


def test_a_declared_file_that_a_benchmark_opens_itself_is_fetched_too(tmp_path: Path) -> None:
    source = Source("mine/test.jsonl.gz", "https://example.org", "", 1, "MIT")
    benchmark = replace(find("bfcl"), sources=(source,))
    declared = requirement_of("data", (tmp_path / "mine" / "test.jsonl.gz").read_bytes)
    another = requirement_of("shots", (tmp_path / "mine" / "shots.jsonl").read_bytes)
    problems = missing_requirements([declared, another])
    assert files_to_fetch(benchmark, tmp_path, problems) == {problems[0]: [source]}
