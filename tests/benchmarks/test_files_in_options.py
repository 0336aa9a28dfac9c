"""An option that names a file counts for what the file holds, wherever it lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import describe_run, find
from lemur_ray.benchmarks.run_notes import EvaluationRun


def as_file(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def as_folder(place: Path, text: str) -> Path:
    as_file(place / "javatuples-1.2.jar", text)
    return place


@pytest.mark.parametrize(
    ("name", "option", "made"),
    [
        ("gsm8k", "shots_file", as_file),
        ("robocodegen", "examples_file", as_file),
        ("multipl_e/java", "javatuples", as_folder),
        ("webarena/webarena", "task_file", as_file),
        ("webarena/webarena", "prompt_file", as_file),
    ],
)
def test_the_same_content_elsewhere_is_the_same_recipe_and_another_content_is_another(
    tmp_path: Path, name: str, option: str, made: Callable[[Path, str], Path]
) -> None:
    benchmark = find(name)

    def identity(**options: str) -> dict[str, Any]:
        return benchmark.identity_of(benchmark.options(**options), EvaluationRequest(), "auto")

    here, there = (identity(**{option: str(made(tmp_path / place / "it", "one"))}) for place in ("here", "there"))
    assert here == there != identity()
    assert str(tmp_path) not in str(here)
    assert identity(**{option: str(made(tmp_path / "other/it", "two"))}) != here
    assert identity()[option] == "", "as in recipes of before"


def test_a_page_says_that_the_examples_were_others_and_not_their_digest() -> None:
    kept = {"mode": "lemur", "form": "base", "shots_file": "0123456789abcdef"}
    (departure,) = describe_run("gsm8k", EvaluationRun("p", kept)).departures
    assert departure == "instruction in other words, another shots file", "and nothing of the training set"


def as_root(place: Path, text: str) -> Path:
    as_file(place / "usr/bin/tool", text).chmod(0o755)
    (place / "usr/bin/other").symlink_to("/etc/hostname")  # of this machine it says nothing
    as_file(place / "etc/shadow", "of whoever unpacked it").chmod(0o600)
    as_file(place / "tmp/left", str(place))
    return place


def test_a_root_file_system_counts_for_what_a_sandbox_shows_of_it(tmp_path: Path) -> None:
    benchmark = find("intercode/bash")

    def identity(root: Path) -> Any:
        return benchmark.identity_of(benchmark.options(rootfs=str(root)), EvaluationRequest(), "auto")["rootfs"]

    here, there = as_root(tmp_path / "here", "one"), as_root(tmp_path / "there", "one")
    found = identity(here)
    assert found == identity(there)
    assert len(found) == 16
    (there / "usr/bin/other").unlink()
    (there / "usr/bin/other").symlink_to("/etc/passwd")
    assert identity(there) != found
    assert identity(as_root(tmp_path / "changed", "two")) != found
    (here / "usr/bin/tool").chmod(0o644)
    assert identity(here) != found, "it can be called no more"


def test_arguments_of_a_foreign_environment_count_for_what_their_paths_hold(tmp_path: Path) -> None:
    benchmark = find("gym:module:Id-v0")

    def identity(**arguments: Any) -> Any:
        options = benchmark.options(arguments=json.dumps(arguments))
        return benchmark.identity_of(options, EvaluationRequest(), "auto")["arguments"]

    here, there = (as_file(tmp_path / place / "words", "one") for place in ("here", "there"))
    found = identity(most=5, lists=[str(here)])
    assert found == identity(most=5, lists=[str(there)])
    assert str(tmp_path) not in str(found)
    there.write_text("two")
    assert identity(most=5, lists=[str(there)]) != found
    told = {"most": 5, "name": "words", "elsewhere": "/absent/of/this/host"}
    assert identity(**told) == told, "as in recipes of before"
