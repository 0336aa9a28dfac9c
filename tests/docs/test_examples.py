"""The scripts and notebooks of ``examples``, run as a user runs them: in a process or a kernel of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agents.misbehaving import Server, completion
from tests.source_tree import ROOT

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def environment(home: Path, **more: str) -> Mapping[str, str]:
    """Of a user whose home is ``home`` and who has installed the command ``lemur``."""
    command = home / "bin" / "lemur"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!{sys.executable}\nfrom lemur_ray.host.commands import main\n\nmain()\n")
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    kernel = {name: str(home / name) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    return os.environ | {"LEMUR_HOME": str(home), "PYTHONPATH": str(ROOT), "PATH": path} | kernel | more


def run_script(name: str, home: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *words],
        env=environment(home), cwd=home.parent, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def execute(notebook: str, home: Path, **variables: str) -> str:
    """Run all cells in a kernel; returns what they print. Raises AssertionError with the end of a failed cell."""
    result = home / "executed"
    command = [sys.executable, "-c", "from nbclient.cli import main; main()", f"--output={result}"]
    env = environment(home, **variables)
    source = home / f"{notebook}.ipynb"
    source.write_bytes((EXAMPLES / "notebooks" / source.name).read_bytes())
    done = subprocess.run([*command, source], env=env, cwd=home, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    cells: list[dict[str, Any]] = json.loads(result.with_suffix(".ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return "\n".join("".join(output.get("text", ())) or str(output.get("data")) for output in outputs)


def test_there_are_six_scripts_and_three_notebooks_without_stored_outputs() -> None:
    scripts = {path.stem: path.read_text().splitlines() for path in EXAMPLES.glob("*.py")}
    assert len(scripts) == 6
    assert all(len(lines) >= 10 and sum(map(bool, lines)) <= 40 for lines in scripts.values())
    assert all(f"python examples/{name}.py" in "\n".join(lines[:5]) for name, lines in scripts.items())
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert not [cell for cell in code if cell["outputs"] or cell["execution_count"]], path.name


@pytest.mark.slow
def test_scripts_that_need_no_cluster_do_what_their_first_line_promises(tmp_path: Path) -> None:
    assert "expert: solved 6 of 6" in run_script("own_benchmark", tmp_path / "a")
    assert "solved 20 of 20" in run_script("gym_environment", tmp_path / "b")
    assert "solved 0 of 4" in run_script("function_policy", tmp_path / "d")
    assert "num_rows: 8" in run_script("conversations_for_tuning", tmp_path / "e")
    server = Server(lambda request: completion("look"))
    try:
        printed = run_script("endpoint", tmp_path / "c", server.url)
    finally:
        server.close()
    assert "'success_rate': 0.0" in printed
    assert "the last reply was 'look'" in printed


@pytest.mark.sweep  # it compiles an engine, as the notebook below and tests/test_library.py do
def test_a_script_chats_with_an_untrained_model(tmp_path: Path) -> None:
    assert "'n': 2" in run_script("chat", tmp_path / "a")


@pytest.mark.slow
def test_a_notebook_of_an_own_benchmark_runs_without_a_cluster(tmp_path: Path) -> None:
    printed = execute("own_benchmark", tmp_path / "home")
    assert "side by side, with every reply" in printed
    assert "Nairobi" not in printed


@pytest.mark.slow
def test_a_notebook_reads_the_failures_of_an_endpoint_on_mint(tmp_path: Path, data_dir: Path) -> None:
    replies = ["Thought: I try.\n<execute>print(6 * 7)</execute>", "Thought: done.\n<solution> 42 </solution>"]

    def answer(request: dict[str, Any]) -> Any:
        own = [message for message in request["messages"] if message["role"] == "assistant"]
        return completion(replies[min(len(own) % 2, 1)])

    server = Server(answer)
    try:
        printed = execute("endpoint_on_mint", tmp_path / "home", ENDPOINT=server.url, LEMUR_DATA=str(data_dir))
    finally:
        server.close()
    assert "--- turn 1, the model:\nThought: I try." in printed
    assert "of 8, 95 % interval" in printed


@pytest.mark.slow
def test_a_notebook_without_its_endpoint_ends_with_what_to_do(tmp_path: Path, data_dir: Path) -> None:
    with pytest.raises(AssertionError, match="is the server running"):
        execute("endpoint_on_mint", tmp_path / "home", ENDPOINT="http://127.0.0.1:9/v1", LEMUR_DATA=str(data_dir))


@pytest.mark.sweep
def test_a_notebook_makes_a_chat_model_from_a_corpus(tmp_path: Path) -> None:
    printed = execute("corpus_to_chat", tmp_path / "home")
    assert "Who are you?" in printed
