"""The check of a commit fails where a part of it could not be done, and says which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.http.test_evaluation_clients import need_clients
from tests.serve.http.test_evaluation_clients import pytestmark as marks_of_clients

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("apt-get", "bwrap", "chromium", "g++", "git", "mariadbd", "my_print_defaults", "python3")


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """An environment in which every command is there and does nothing, and make fails for what FAILING names."""
    for name in COMMANDS:
        command(tmp_path / name, "true")
    for name in ("docker", "dockerd"):
        command(tmp_path / name, "false")
    command(tmp_path / "make", '[[ "$1" != "$FAILING" ]]')
    return {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}


def command(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/bash\n{does}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("failing", "status"), [("", 0), ("sites", 0), ("clients", 1), ("check", 1), ("test", 1), ("test-slow", 1)]
)
def test_the_check_of_a_commit_fails_with_each_of_its_parts(machine: dict[str, str], failing: str, status: int) -> None:
    env = {**machine, "FAILING": failing}
    done = subprocess.run([str(ROOT / ".ci" / "run")], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == status, done.stdout
    assert ("they cannot be installed here" in done.stdout) == (failing == "clients")
    assert ("no stand-in sites here: their tests skip" in done.stdout) == (failing == "sites")


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_clients_that_are_missing_are_an_error_in_ci_and_a_reason_to_skip_elsewhere(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=f"no evaluation clients at {tmp_path}/python: run make clients"):
        need_clients(tmp_path / "python")
    need_clients(Path(sys.executable))
    assert "clients" in [name for mark in marks_of_clients for name in mark.args], "their tests do not ask"
