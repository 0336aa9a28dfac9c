"""Benchmarks are found by name: ours, those of installed packages, and any object of a module; nobody lists them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest, all_options, location_option, storable_options
from lemur_ray.benchmarks.data_sets import data_sets, select_data_sets
from lemur_ray.benchmarks.discovery import find, names, offers
from lemur_ray.benchmarks.listing import benchmark_statuses
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.benchmarks.recorded_runs import publications
from lemur_ray.evaluation.suites.command_line import parse_suite
from lemur_ray.evaluation.suites.tables import parts_of
from lemur_ray.rollout.benchmark_tasks import from_json, options_of, parse_evaluation, tasks_and_settings, to_json
from tests.conftest import ROOT

PLUG_IN = '''
from collections.abc import Iterator
from dataclasses import dataclass

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest


@dataclass(frozen=True)
class Options:
    split: str = "heldout"
    """Which games."""


def load(options: Options, request: EvaluationRequest) -> Iterator[Task]:
    for index in range(3):
        game = {"split": options.split, "seed": 7, "index": index, "prompt": request.prompt, "max_steps": 50}
        yield Task("household/few", f"{index}", "envs:lemur/ALFWorldText-v0", "few", {**game, "hints": False}, 50)


BENCHMARKS = {"few": Benchmark(Options, load, {"full": 64, "brief": 32}, has_hints=True)}
'''


def install(folder: Path, package: str, family: str, text: str = PLUG_IN) -> None:
    """A package as pip would leave it: a module and its metadata with one entry point."""
    (folder / f"{package}.py").write_text(text)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lemur_ray.benchmarks]\n{family} = {package}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_ours_are_found_by_family_and_variant() -> None:
    known = list(names())
    assert {"alfworld/text", "intercode/sql", "mint/gsm8k"} <= set(known)
    assert all(isinstance(find(name), Benchmark) for name in known)


def test_a_package_outside_the_repository_is_played_by_its_name(site: Path, tmp_path: Path) -> None:
    install(site, "household_plug_in", "household")
    environment = {**os.environ, "PYTHONPATH": f"{site}", "LEMUR_HOME": str(tmp_path / "home")}
    command = [
        "--benchmark",
        "household/few",
        "--split",
        "train",
        "--policy",
        "expert",
        "--actors",
        "0",
        "--out",
        "out",
    ]
    job = [sys.executable, str(ROOT / "jobs" / "agent_eval.py"), *command]
    done = subprocess.run(job, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["benchmark"], said["scored"], said["solved"]) == ("household/few", 3, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("intercode/sq", "did you mean 'intercode/sql'"),
        ("intercod/sql", "no package offers 'intercod'"),
        ("intercode", "unknown benchmark"),
        ("nowhere_at_all:X", "cannot be imported: ModuleNotFoundError"),
        ("json:dumps", "expected a lemur_ray Benchmark, got a function"),
        ("json:nothing", "there is no such benchmark; the module has nothing of that name"),
    ],
)
def test_a_name_that_is_none_says_what_there_is(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find(name)


def test_two_packages_of_one_name_are_both_named(site: Path) -> None:
    install(site, "one_plug_in", "twice")
    install(site, "other_plug_in", "twice")
    with pytest.raises(ValueError, match=r"2 packages offer 'twice': one_plug_in, other_plug_in"):
        find("twice/few")


def test_a_package_that_raises_on_import_is_named_and_hides_no_other(site: Path) -> None:
    install(site, "broken_plug_in", "broken", "raise RuntimeError('no licence found')")
    with pytest.raises(ValueError, match="broken_plug_in cannot be imported: RuntimeError: no licence found"):
        find("broken/few")
    assert "alfworld/text" in set(names())


def test_a_package_that_ends_the_process_on_import_is_named_and_hides_no_other(site: Path) -> None:
    install(site, "leaving_plug_in", "leaving", "raise SystemExit(0)")
    with pytest.raises(ValueError, match="leaving_plug_in cannot be imported: SystemExit: 0"):
        find("leaving/few")
    assert "alfworld/text" in set(names())
    assert any(one.name == "leaving" and "SystemExit" in one.lacks[0] for one in benchmark_statuses(None))


def test_tasks_that_end_the_process_are_something_missing_and_a_sentence() -> None:
    def leaves(options: Any, request: EvaluationRequest) -> Iterator[Task]:
        yield load(options, request)[0]
        sys.exit(0)

    leaving = Benchmark(Placed, leaves, {"full": 8, "brief": 8})
    config = parse_evaluation(["--benchmark", f"{__name__}:PLACED"], "")
    with pytest.raises(ValueError, match=r"PLACED: its tasks cannot be loaded: it asked the process to end \(0\)"):
        tasks_and_settings(config, leaving)
    at_once = Benchmark(Placed, lambda options, request: sys.exit("no licence"), {"full": 8, "brief": 8})
    assert (
        "asked the process to end (no licence)"
        in missing_requirements(at_once.requirements(Placed(), EvaluationRequest()))[0]
    )


SPOILT = """
from dataclasses import dataclass
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails

@dataclass(frozen=True)
class Options:
    pass

@dataclass(frozen=True)
class Required:
    folder: str

def load(options, asked):
    return []

def says(run):
    return run.settings["x"]

def needs(options, asked):
    raise KeyError("y")

both = {"full": 8, "brief": 8}
BENCHMARKS = {
    "": Benchmark(Options, load, both),
    "none": "no benchmark",
    "required": Benchmark(Required, load, both),
    "says": Benchmark(Options, load, both, details=BenchmarkDetails(about=says)),
    "needs": Benchmark(Options, load, both, needs=needs),
}
"""


def test_what_one_package_spoils_is_its_own_offer_alone(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "spoilt_plug_in", "my-bench", SPOILT)
    every = {one.name: one for one in offers()}
    assert isinstance(find("my-bench"), Benchmark)
    assert isinstance(find("my-bench/says"), Benchmark)
    assert "expected a lemur_ray Benchmark, got a str" in every["my-bench/none"].why
    assert "its option folder has no default" in every["my-bench/required"].why
    assert {"alfworld/text", "my-bench", "my-bench/says"} <= set(names())
    lines = {one.name: one for one in benchmark_statuses(None)}
    assert lines["my-bench"].is_ready
    assert lines["my-bench/needs"].lacks == ("my-bench/needs: what it needs cannot be had: KeyError: 'y'",)
    assert lines["my-bench/required"].lacks == (every["my-bench/required"].why,)
    played = {part.benchmark.partition("/")[0] for part in parts_of("table3")}
    assert {"gsm8k", "mmlu"} <= played, "however badly others answer which column they have"
    assert "my-bench" not in played
    assert "my-bench/says: what it says of its runs cannot be had: KeyError: 'x'" in capsys.readouterr().err
    assert publications()
    complaints: list[str] = []
    assert [one.name for one in select_data_sets(["gsm8k"], data_sets(complaints.append))]
    assert complaints == [every[name].why for name in ("my-bench/none", "my-bench/required")]


def test_a_second_package_of_our_name_is_said_wherever_the_name_is_meant(site: Path) -> None:
    install(site, "second_plug_in", "gsm8k")
    both = r"2 packages offer 'gsm8k': envs.language.gsm8k.benchmark, second_plug_in; remove one"
    with pytest.raises(ValueError, match=both):
        find("gsm8k")
    assert "gsm8k" not in set(names())
    assert all(
        "second_plug_in; remove one" in one.lacks[0] for one in benchmark_statuses(None) if one.name.startswith("gsm8k")
    )
    complaints: list[str] = []
    known = data_sets(complaints.append)
    assert len(complaints) == 1
    with pytest.raises(ValueError, match=both):
        select_data_sets(["gsm8k"], known)
    assert select_data_sets(["mmlu"], known)
    assert "gsm8k" in {part.benchmark for part in parts_of("table3")}
    with pytest.raises(ValueError, match=both):
        parse_suite(["--suite", "table3"])
    assert parse_suite(["--suite", "table3", "--without", "gsm8k"]).parts
    assert parse_suite(["--suite", "table4"]).parts, "of which it is no part"


def test_a_name_that_no_command_line_can_mean_is_said(site: Path) -> None:
    install(site, "colon_plug_in", "my/bench")
    assert any(one.name == "my/bench/few" and "'/' in it" in one.lacks[0] for one in benchmark_statuses(None))


@dataclass(frozen=True)
class Hiding:
    limit: int = 3


@dataclass(frozen=True)
class Required:
    folder: str


@dataclass(frozen=True)
class Placed:
    rule: str = "plain"
    server: str = location_option("here", stored_as=lambda url: url.partition(":")[0])


def load(options: Any, request: EvaluationRequest) -> list[Task]:
    return [Task("own/one", "1", "nowhere", "", {}, 1)]


PLACED = Benchmark(Placed, load, {"full": 8, "brief": 8})


@pytest.mark.parametrize(("options", "message"), [(Hiding, "limit hide"), (Required, "folder has no default")])
def test_options_that_cannot_be_flags_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options_of("own/one", Benchmark(options, load, {}))


def test_a_place_is_no_part_of_what_is_measured_and_its_secret_is_not_written() -> None:
    options = Placed(server="mysql://user:password@host")
    assert all_options(options, EvaluationRequest()) == {"rule": "plain"}
    assert storable_options(options) == {"rule": "plain", "server": "mysql"}
    argv = ["--benchmark", f"{__name__}:PLACED", "--rule", "strict", "--server", "mysql://u:secret@h", "--limit", "5"]
    config = parse_evaluation(argv, "alfworld/text")
    assert (config.limit, config.options) == (5, Placed("strict", "mysql://u:secret@h"))
    assert "secret" not in json.dumps(to_json(config))
    assert from_json(json.loads(json.dumps(to_json(config)))).options == Placed("strict", "mysql")


def test_a_version_enters_the_hash_from_two_on() -> None:
    config = parse_evaluation(["--benchmark", f"{__name__}:PLACED"], "")
    hashes = [
        tasks_and_settings(config, Benchmark(Placed, load, {"full": 8, "brief": 8}, version=version))[1].hash
        for version in (1, 2, 3)
    ]
    assert len(set(hashes)) == 3
    assert hashes[0] == tasks_and_settings(config, PLACED)[1].hash


def test_a_module_of_the_working_directory_is_found_here_and_in_processes_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plug_in_of_this_folder.py").write_text(PLUG_IN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    with pytest.raises(ValueError, match="cannot be imported: ModuleNotFoundError"):
        find("plug_in_of_this_folder:X")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="the module has nothing of that name"):
        find("plug_in_of_this_folder:X")
    assert (sys.path[-1], os.environ["PYTHONPATH"]) == (str(tmp_path), f"elsewhere{os.pathsep}{tmp_path}")
