"""MultiPL-E's TypeScript is compiled by the pinned version where it was installed, and says so where it was not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envs.programs.multipl_e import program, typescript
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.storage.bundles.host_path import HostPath
from tests.conftest import ROOT
from tests.envs.programs.test_multipl_e import all_pass, needs_data, with_tools
from tests.envs.questions import tasks_of

ROW = {
    "name": "HumanEval_53_add",
    "language": "ts",
    "prompt": "function add(x: number, y: number): number {\n",
    "tests": "declare var require: any;\nconst assert = require('node:assert');\nassert.equal(add(1, 2), 3);\n",
    "stop_tokens": ["\nfunction "],
}


def task(folder: Path) -> Task:
    (folder / "multipl_e").mkdir(exist_ok=True)
    (folder / "multipl_e/humaneval-ts.jsonl").write_text(json.dumps(ROW))
    (found,) = tasks_of("multipl_e/ts", folder)
    return found


def said(folder: Path) -> tuple[list[str], str]:
    """Departures, and what is lacking."""
    benchmark, asked = find("multipl_e/ts"), EvaluationRequest(data=folder)
    options = benchmark.options()
    need = next(need for need in benchmark.requirements(options, asked) if need.what == "tool chain")
    return list(benchmark.details.departures(options, asked, [])), str(need.missing())


def as_installed(lemur_home: Path, version: str, compiler: str = "exit 0") -> Path:
    folder = lemur_home / "environments/typescript"
    (folder / "node_modules/typescript").mkdir(parents=True, exist_ok=True)
    (folder / "node_modules/.bin").mkdir(exist_ok=True)
    (folder / "node_modules/typescript/package.json").write_text(json.dumps({"version": version}))
    (folder / "node_modules/.bin/tsc").write_text(f"#!/bin/sh\n{compiler}\n")
    (folder / "node_modules/.bin/tsc").chmod(0o755)
    return folder


def test_what_was_installed_compiles_and_goes_along(lemur_home: Path, tmp_path: Path) -> None:
    folder = as_installed(lemur_home, typescript.pinned(), "echo the pinned one: $3 >&2; exit 1")
    asked = task(tmp_path).options
    assert asked["reference"]["typescript"] == str(folder)
    assert isinstance(asked["reference"]["typescript"], HostPath)
    graded = program.grade("    return x + y;\n}\n", asked)
    assert (graded.score, graded.note) == (0.0, "tsc: the pinned one: --lib")
    departures, lacking = said(tmp_path)
    assert departures == []
    assert "node-typescript" not in lacking


@pytest.mark.parametrize("version", ["", "4.8.4"])
def test_another_version_is_not_taken_for_it(version: str, lemur_home: Path, tmp_path: Path) -> None:
    if version:
        as_installed(lemur_home, version)
    assert "typescript" not in task(tmp_path).options["reference"]
    ((departure,), _) = said(tmp_path)
    assert f"4.8 in Debian 12, instead of {typescript.pinned()}" in departure
    assert typescript.COMMAND in departure


def test_its_version_and_checksum_are_pinned_and_no_registry_is() -> None:
    lock = json.loads((ROOT / "cluster/images/multipl_e/package-lock.json").read_text())
    ((_, package),) = [(name, one) for name, one in lock["packages"].items() if name]
    assert package["version"] == typescript.pinned()
    assert package["version"].startswith("5.")
    assert package["integrity"].startswith("sha512-")
    assert "resolved" not in package


def test_npm_that_fails_leaves_what_was_there_and_says_why(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = as_installed(lemur_home, "5.0.0")
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin/npm"
    npm.write_text("#!/bin/sh\necho the registry is away >&2; exit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}{os.environ['PATH']}")
    assert typescript.main([]) == 1
    assert f"npm installs no typescript {typescript.pinned()}: the registry is away" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path / "absent"))
    assert typescript.main([]) == 1
    assert "apt-get install -y npm" in capsys.readouterr().err
    assert [path.name for path in folder.parent.iterdir()] == ["typescript"]
    assert (folder / "node_modules/.bin/tsc").is_file()


@needs_data
@pytest.mark.slow
@pytest.mark.sweep  # the slow tier has the same with the compiler of this machine
def test_known_solutions_pass_by_the_pinned_version(lemur_home: Path, tmp_path: Path) -> None:
    with_tools("js")
    try:
        typescript.install(lemur_home / "environments/typescript")
    except RuntimeError as error:
        pytest.skip(f"npm brings no TypeScript here: {error}")
    assert said(tmp_path)[0] == []
    assert all_pass("ts", "bwrap", tmp_path)
