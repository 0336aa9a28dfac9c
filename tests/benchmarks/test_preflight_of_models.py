"""Before a model is served for a policy: what it lacks is said in one line, in seconds, and nothing is started."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.doctor.devices import Devices
from lemur_ray.model.llama import init_params
from lemur_ray.serve import policy_model
from lemur_ray.serve.on_ray import attach
from lemur_ray.text.tokenizer_folder import tokenizer_in
from tests.conftest import ROOT
from tests.text import kinds
from tests.text.templates.formats import LLAMA_3
from tests.weights.whole_models import write_model

Run = Callable[..., tuple[int, list[str]]]
BOUND_S = 5.0
"""Within which everything has been looked at, without the start of a sandbox."""


def hugging_face(folder: Path, *, context: int = 4096, template: bool = True) -> Path:
    files = kinds.llama_3()
    tokenizer = tokenizer_in(kinds.write(files, folder.parent / "tokenizer"))
    shape = ModelConfig(num_layers=1, dim=16, ffn_dim=24, num_heads=2, num_kv_heads=1, head_dim=8, max_seq_len=context)
    config = ModelConfig(**{**vars(shape), "vocab_size": tokenizer.vocab_size})
    write_model(init_params(config, 0), config, None, folder)
    kinds.write(files, folder)
    if template:
        (folder / "chat_template.jinja").write_text(LLAMA_3)
    return folder


@pytest.fixture
def run(lemur_home: Path, data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The job in this process, where nothing may be started: exit code, and what it says."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job, evaluation = importlib.import_module("agent_eval"), importlib.import_module("lemur_ray.evaluation.evaluate")
    policy_model.check_policy_model.cache_clear()

    def begun(*a: Any) -> None:
        raise _Begun

    monkeypatch.setattr(evaluation, "open_pool", begun)

    def run_job(*argv: str) -> tuple[int, list[str]]:
        code = job.main(["--benchmark", "intercode/sql", "--data", str(data_dir), *argv])
        return code, capsys.readouterr().err.splitlines()

    return run_job


class _Begun(BaseException):
    """Nothing lacked."""


def one_line(run: Run, *argv: str) -> str:
    code, said = run(*argv)
    assert (code, len(said)) == (1, 1), said
    return said[0]


@pytest.mark.parametrize("kind", ["checkpoint", "handle"])
def test_a_model_that_cannot_be_opened_is_said_in_one_line(run: Run, kind: str, tmp_path: Path) -> None:
    assert "neither a folder nor a run" in one_line(run, "--policy", f"{kind}:{tmp_path}/none")
    folder = hugging_face(tmp_path / "model")
    for weights in folder.glob("*.safetensors*"):
        weights.unlink()
    said = one_line(run, "--policy", f"{kind}:{folder}")
    assert "safetensors" in said
    assert str(folder) in said


def test_a_model_without_a_template_is_to_be_given_one(run: Run, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "model", template=False)
    policy = ("--policy", f"checkpoint:{folder}")
    assert "no chat template: start with --chat-template and a file" in one_line(run, *policy)
    said = one_line(run, *policy, "--chat-template", str(tmp_path / "none.jinja"))
    assert f"--chat-template {tmp_path}/none.jinja: " in said
    assert "expected a file with a Jinja template" in said
    (tmp_path / "bad.jinja").write_text("{% for %}")
    assert "template" in one_line(run, *policy, "--chat-template", str(tmp_path / "bad.jinja"))
    assert "needs the tokens <|im_start|>" in one_line(run, *policy, "--chat-template", "chatml")
    (tmp_path / "good.jinja").write_text(LLAMA_3)
    with pytest.raises(_Begun):
        run(*policy, "--chat-template", str(tmp_path / "good.jinja"))


def test_a_context_that_is_too_short_is_refused_and_one_that_is_not_lets_it_begin(run: Run, tmp_path: Path) -> None:
    short = hugging_face(tmp_path / "short" / "model", context=128)
    said = one_line(run, "--policy", f"checkpoint:{short}", "--max-tokens", "120")
    assert "the context of the model is 128 tokens" in said
    assert "take a model with a longer context" in said
    with pytest.raises(_Begun):
        run("--policy", f"checkpoint:{hugging_face(tmp_path / 'long' / 'model')}", "--max-tokens", "120")


@pytest.mark.parametrize("count", [lambda text: 100, lambda text: None, None])
def test_a_model_that_runs_elsewhere_is_looked_at_by_what_it_says(
    run: Run, count: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = 0
    monkeypatch.setattr(attach, "served", lambda: [attach.Running("app", "mine", "/gone", "1", context)])
    monkeypatch.setattr(attach, "num_tokens", lambda application, text: count(text) if count else None)
    monkeypatch.setenv("RAY_ADDRESS", "ray://nobody")
    evaluation = importlib.import_module("lemur_ray.evaluation.evaluate")
    monkeypatch.setattr(evaluation, "attach_policy", lambda spec: attach.attach(spec, lambda: None))
    with pytest.raises(_Begun):
        run("--policy", "handle:mine", "--max-tokens", "30")
    assert "app does not say how long its context is: whether prompts fit" in capsys.readouterr().err
    context = 128
    with pytest.raises(_Begun):
        run("--policy", "handle:mine", "--max-tokens", "5")
    code, said = run("--policy", "handle:mine", "--max-tokens", "120")
    assert code == 1
    assert "mine: the context of the model is 128 tokens" in said[-1], said
    assert "give --max-tokens" in said[-1]


def test_all_faults_of_a_folder_stand_in_one_line(run: Run, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 20}))
    (folder / "chat_template.jinja").write_text("{% for %}")
    said = one_line(run, "--policy", f"handle:{folder}")
    for part in ("is truncated", "the model 20 rows", "the chat template is no Jinja template"):
        assert said.count(part) == 1, said

    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu", "mlp_bias": True}))
    (folder / "tokenizer.json").write_text("{")
    said = one_line(run, "--policy", f"checkpoint:{folder}", "--chat-template", str(tmp_path / "none.jinja"))
    absent = f"--chat-template {tmp_path}/none.jinja"
    for part in ("hidden_act is 'gelu'", "mlp_bias is True", "is truncated", "is not a tokenizer.json", absent):
        assert said.count(part) == 1, said
    (folder / "tokenizer.json").unlink()
    weights.unlink()
    said = one_line(run, "--policy", f"checkpoint:{folder}")
    for part in ("hidden_act is 'gelu'", "no model.safetensors and", "no tokenizer.json in"):
        assert said.count(part) == 1, said


def test_tensors_of_another_shape_are_named_together(run: Run, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 25}))
    said = one_line(run, "--policy", f"checkpoint:{folder}")
    assert [name in said for name in ("gate_proj", "up_proj", "down_proj")] == [True] * 3, said
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32, "num_hidden_layers": 2}))
    said = one_line(run, "--policy", f"checkpoint:{folder}")
    assert "tensors more)" in said
    assert len(said) < 1500


def test_a_model_that_has_no_room_is_refused(run: Run) -> None:
    assert "billion parameters as float32 take" in one_line(run, "--policy", "checkpoint:random:llama2-70b")


def test_what_flags_would_make_it_fit_is_said_with_where_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_model, "_devices", lambda: Devices(cpus=2, memory_bytes=20 * 2**30))
    said = one_line(run, "--policy", "checkpoint:random:llama2-7b")
    assert "take --engine.dtype bfloat16 or --engine.quantization int8 (flags of jobs/serve.py: serve it" in said


def test_all_that_a_model_lacks_stands_in_one_line_among_what_else_lacks(run: Run, tmp_path: Path) -> None:
    code, said = run(
        *("--policy", "checkpoint:random:llama2-70b", "--chat-template", str(tmp_path / "none.jinja"), "--step-s", "1")
    )
    assert (code, len(said)) == (1, 3)
    assert "billion parameters" in said[1]
    assert "none.jinja" in said[1]
    assert "--step-s" in said[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        "openai:http://127.0.0.1:9/v1",
        # 4.9 s, most of it the import of jax: so near the bound that only a quiet machine keeps it
        pytest.param("checkpoint:random:llama2-70b", marks=pytest.mark.sweep),
        pytest.param("checkpoint:none", marks=pytest.mark.sweep),
    ],
)
def test_a_look_takes_at_most_five_seconds_of_processor_time(policy: str, tmp_path: Path) -> None:
    argv = ["--benchmark", "mint/alfworld", "--data", str(tmp_path), "--policy", policy]
    with open(tmp_path / "said", "w+") as said:
        look = subprocess.Popen([sys.executable, ROOT / "jobs/agent_eval.py", *argv], stdout=said, stderr=said)
        _, status, used = os.wait4(look.pid, 0)  # of it and its own children, whatever else ends here meanwhile
        look.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    assert look.returncode == 1, text
    assert "is not begun" in text
    assert used.ru_utime + used.ru_stime <= BOUND_S
