"""Other people's clients against a real server: lm-eval, inspect_ai and schemathesis, each in a process of its own.

They live in an environment of their own (``make clients``), because they want other versions than the project does.
Without it these tests skip, but not in CI, where somebody counts on them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = Path(os.environ.get("LEMUR_CLIENTS", ROOT / ".venv-clients")) / "bin" / "python"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clients")]


@pytest.fixture(scope="module")
def clients() -> None:
    need_clients(PYTHON)


def need_clients(python: Path) -> None:
    """An error in CI, where somebody counts on them, and a reason to skip elsewhere."""
    if not python.exists():
        missing = f"no evaluation clients at {python}: run make clients"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


@pytest.fixture(scope="module")
def model(clients: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of random weights with their tokenizer."""
    out = tmp_path_factory.mktemp("model") / "hf"
    command = [sys.executable, str(ROOT / "jobs" / "convert.py"), "--model", "random:nano", "--out", str(out)]
    subprocess.run([*command, "--dtype", "float32"], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return out


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    command = [sys.executable, str(ROOT / "jobs" / "serve.py"), "--model", str(model), "--name", "tiny", "--no-ray"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, "--engine.max-slots", "8"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., str]:
    """Runs a client; what it printed."""

    def run(*arguments: str) -> str:
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "HOME": str(tmp_path)}
        done = subprocess.run([str(PYTHON), *arguments], capture_output=True, text=True, env=env, cwd=tmp_path)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    return run


def test_lm_eval_scores_every_item_as_its_own_backend_does(url: str, model: Path, client: Callable[..., str]) -> None:
    script = Path(__file__).parents[1] / "clients" / "lm_eval_client.py"
    found: dict[str, Any] = json.loads(client(str(script), url, str(model)).splitlines()[-1])
    local = found["local"]
    for name in ("server", "remote"):
        assert len(found[name]["loglikelihood"]) == 25
        for (ours, greedy), (theirs, also) in zip(found[name]["loglikelihood"], local["loglikelihood"], strict=True):
            assert abs(ours - theirs) < 1e-3
            assert greedy == also
        assert found[name]["texts"] == local["texts"]


def test_inspect_runs_evaluations_calls_tools_and_knows_an_overflow(
    url: str, client: Callable[..., str], tmp_path: Path
) -> None:
    script = Path(__file__).parents[1] / "clients" / "inspect_client.py"
    found: dict[str, Any] = json.loads(client(str(script), url, str(tmp_path / "logs")).splitlines()[-1])
    assert found["status"] == ["success", "success"]
    assert found["stop_reasons"] == ["max_tokens", "model_length"]
    assert found["logprobs"] == 8
    name, arguments = found["calls"][0]
    assert (name, arguments.keys()) == ("add", {"x", "y"})
    assert found["results"][0] == str(arguments["x"] + arguments["y"])


def test_no_request_that_the_description_allows_or_forbids_is_a_server_error(
    url: str, client: Callable[..., str]
) -> None:
    page = f"{url.removesuffix('/v1')}/openapi.json"
    checked = ("--checks", "not_a_server_error", "--max-examples", "30", "--seed", "1")
    client("-m", "schemathesis.cli", "run", page, *checked)


@pytest.mark.sweep  # the default tests have the newest client
def test_the_official_client_of_the_major_version_before_passes_the_tests_of_the_newest(tmp_path: Path) -> None:
    folder = PYTHON.parents[1] / "openai-2"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, cwd=ROOT)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    assert run("-c", "import openai; print(openai.__version__)").startswith("2.")
    files = [f"tests/serve/http/test_openai_{name}.py" for name in ("api", "logprobs", "refusals")]
    files.append("tests/serve/openai/test_openai_structures.py")
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t"), *files)
