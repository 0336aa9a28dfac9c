"""The job from the bundled files of the public sets to a tuned model, whole and with adapters, on Ray."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import init_params
from lemur_ray.text.tokenizer import Tokenizer
from tests.weights.whole_models import params_of, write_model

TINY = ModelConfig(
    vocab_size=384, num_layers=2, dim=32, ffn_dim=64, num_heads=2, num_kv_heads=1, head_dim=16, max_seq_len=2048
)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A model of two layers in Hugging Face format, with a tokenizer of bytes."""
    params = jax.tree.map(np.asarray, init_params(TINY, 0))
    write_model(params, TINY, Tokenizer.bytes_only(), tmp_path / "start")
    return tmp_path / "start"


def flags(data_dir: Path, start: Path, out: Path) -> list[str]:
    folder = data_dir / "bench" / "instruct"
    model = [f"--model.{n.replace('_', '-')}={getattr(TINY, n)}" for n in
             ("vocab_size", "num_layers", "dim", "ffn_dim", "num_heads", "num_kv_heads", "head_dim")]  # fmt: skip
    return [
        "lemur-7b-chat", *model, "--init-from", str(start), "--out", str(out),
        "--mesh.num-workers=1", "--mesh.no-use-tpu", "--mesh.topology=", "--mesh.accelerator-type=",
        "--mesh.fsdp=1", "--train.remat=none", "--train.compute-dtype=float32", "--data.seq-len=256",
        "--model.max-seq-len=256", "--optimizer.peak-lr=1e-2", "--tuning.batch-examples=16",
        "--oasst1", str(folder / "oasst_trees_en.jsonl.gz"),
        "--openorca", str(folder / "openorca_schema_from_gsm8k_train.jsonl.gz"),
        "--sharegpt", str(folder / "sharegpt_schema_fastchat_dummy.jsonl.gz"),
        str(folder / "sharegpt_real_fixture_axolotl.json.gz"),
        "--evol", str(folder / "evol_schema_from_mbpp.jsonl.gz"), "--openorca-rows=50",
        "--language=", "--encoder=hashing:512",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_four_sets_tune_a_model_through_the_job(
    ray_local: str,
    data_dir: Path,
    start: Path,
    tmp_path: Path,
    lemur_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "jobs"))
    main = importlib.import_module("instruct").main
    assert main(flags(data_dir, start, tmp_path / "run")) == 0
    said = capsys.readouterr().out
    result = json.loads(said.strip().splitlines()[-1])
    (mixture,) = result["mixture"]
    assert mixture["built_epochs"] == 2.0
    assert result["rows"] == 2 * mixture["rows"]
    assert "OpenOrca: MIT" in said
    assert "Table 1" in said
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] - 0.5
    assert main(["--config", str(tmp_path / "run" / "config.yaml")]) == 0
    said = capsys.readouterr().out
    assert "used as it is" in said
    assert json.loads(said.strip().splitlines()[-1])["already_finished"]


@pytest.mark.sweep
def test_adapters_are_tuned_through_the_job_and_a_file_of_another_kind_is_refused(
    ray_local: str,
    data_dir: Path,
    start: Path,
    tmp_path: Path,
    lemur_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "jobs"))
    main = importlib.import_module("instruct").main
    lora = ["--lora.rank=4", "--tuning.epochs=1"]
    assert main([*flags(data_dir, start, tmp_path / "lora"), *lora]) == 0
    capsys.readouterr()
    before, after = params_of(start), params_of(tmp_path / "lora")
    assert not np.array_equal(before["layers"]["wq"], after["layers"]["wq"])
    assert np.array_equal(before["embed"], after["embed"])
    (tmp_path / "x.jsonl").write_text("{}\n")
    assert main([*flags(data_dir, start, tmp_path / "no"), "--conversations", str(tmp_path / "x.jsonl")]) == 1
    assert "leave it out with --oasst1" in capsys.readouterr().err
