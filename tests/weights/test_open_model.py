"""Every way to name a model, and the job that converts one into another."""

import importlib.util
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import jax
import numpy as np
import pytest

from lemur_ray.rollout.endpoints.policy_target import checkpoint_label, pin_checkpoint, resolve_model
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.checkpoints import model_fingerprint
from lemur_ray.weights.open_model import (
    ModelNotFound,
    OpenChatModel,
    load_tokenizer,
    open_chat_model,
    vocabulary_faults,
)
from tests.weights.whole_models import whole

ROOT = Path(__file__).resolve().parents[2]


def job(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    spec = importlib.util.spec_from_file_location("convert_job", ROOT / "jobs" / "convert.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.main(arguments))


def same(a: OpenChatModel, b: OpenChatModel) -> bool:
    equal = jax.tree.map(lambda x, y: np.array_equal(x, y), whole(a.source), whole(b.source))
    return jax.tree.all(equal) and a.source.config == b.source.config and a.tokenizer.to_json() == b.tokenizer.to_json()


def test_a_random_model_goes_to_a_run_to_hugging_face_and_back(
    lemur_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random = open_chat_model("random:nano")
    assert job(["--model", "random:nano", "--out", "runs/start", "--to", "run"], monkeypatch) == 0
    run = lemur_home / "runs" / "start"
    assert f"wrote {run}" in capsys.readouterr().out
    loaded = open_chat_model(str(run))
    assert same(loaded, random)
    assert (loaded.name, loaded.recipe["name"]) == ("start", "random-nano")
    assert same(open_chat_model(str(run / "checkpoints" / "0")), random)

    assert job(["--model", str(run), "--out", "hf"], monkeypatch) == 0
    back = open_chat_model(str(lemur_home / "hf"))
    assert same(back, random)
    assert back.recipe == {}

    assert job(["--model", str(run), "--out", "hf"], monkeypatch) == 1
    assert "is not empty" in capsys.readouterr().err


def test_convert_finds_runs_by_name(
    lemur_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(["--model", "random:nano", "--out", "runs/start", "--to", "run"], monkeypatch) == 0
    assert job(["--model", "start", "--out", "hf"], monkeypatch) == 0
    assert job(["--model", "nowhere", "--out", "other"], monkeypatch) == 1
    assert "there: start" in capsys.readouterr().err


def test_random_weights_can_have_the_tokenizer_of_another_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat"] * 20, 280)
    step = tmp_path / "run" / "checkpoints" / "3"
    step.mkdir(parents=True)
    tokenizer.save(tmp_path / "run" / "tokenizer.json")
    for folder in (tmp_path / "run", step):
        loaded = open_chat_model(f"random:nano@{folder}")
        assert loaded.tokenizer.is_same(tokenizer)
        assert whole(loaded.source)["embed"].shape[0] == loaded.source.config.vocab_size == tokenizer.vocab_size
        assert loaded.name == "random-nano"
        assert load_tokenizer(str(folder)).is_same(tokenizer)
    assert load_tokenizer("random:nano").is_same(Tokenizer.bytes_only())
    with pytest.raises(ModelNotFound, match=r"no tokenizer\.json in"):
        open_chat_model(f"random:nano@{tmp_path}/elsewhere")


def test_a_torn_checkpoint_is_passed_over(lemur_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job(["--model", "random:nano", "--out", "r", "--to", "run"], monkeypatch) == 0
    torn = lemur_home / "r" / "checkpoints" / "7" / "plan"
    torn.mkdir(parents=True)
    (torn / "metadata").write_text("{}")
    assert open_chat_model(str(lemur_home / "r")).version.startswith("0-")
    run = resolve_model("r", lemur_home)
    assert checkpoint_label(pin_checkpoint(run)) == f"r@{open_chat_model(run).version}"


def test_weights_written_anew_have_another_version(lemur_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = set()
    for name in ("a", "b"):
        assert job(["--model", "random:nano", "--out", f"{name}/r", "--to", "run"], monkeypatch) == 0
        assert job(["--model", str(lemur_home / name / "r"), "--out", f"{name}/hf"], monkeypatch) == 0
        for folder in ("r", "r/checkpoints/0"):
            versions.add(open_chat_model(str(lemur_home / name / folder)).version)
    assert len(versions) == 2
    weights = lemur_home / "b" / "hf" / "model.safetensors"
    assert model_fingerprint(lemur_home / "a" / "hf") == model_fingerprint(weights.parent)
    data = bytearray(weights.read_bytes())
    data[-4096:] = bytes(4096)
    weights.write_bytes(data)
    assert model_fingerprint(lemur_home / "a" / "hf") != model_fingerprint(weights.parent)
    assert open_chat_model(str(weights.parent)).version == model_fingerprint(weights.parent)


def test_what_is_not_a_model_is_described(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no model at"):
        open_chat_model(str(tmp_path / "nowhere"))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelNotFound, match=r"holds notes.txt: expected recipe.json"):
        open_chat_model(str(tmp_path))
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(ModelNotFound, match="no committed checkpoint"):
        open_chat_model(str(tmp_path))
    with pytest.raises(ValueError, match="unknown recipe 'nanoo'"):
        open_chat_model("random:nanoo")


def test_a_tokenizer_is_found_where_its_model_lies_also_in_a_bucket_and_a_damaged_one_is_named() -> None:
    fs, folder = fsspec.filesystem("memory"), f"memory://models/{uuid.uuid4().hex}"
    fs.pipe_file(f"{folder}/tokenizer.json", Tokenizer.bytes_only().to_json().encode())
    for spec in (folder, f"{folder}/checkpoints/12", f"random:nano@{folder}"):
        assert load_tokenizer(spec).is_same(Tokenizer.bytes_only())
    fs.pipe_file(f"{folder}/tokenizer.json", b"\xff{")
    with pytest.raises(ValueError, match=f"{folder}/tokenizer.json is not a tokenizer.json .* copy it anew"):
        load_tokenizer(folder)
    with pytest.raises(ModelNotFound, match=r"no tokenizer\.json in memory://models/none"):
        load_tokenizer("memory://models/none")


def test_a_config_that_names_no_end_is_not_compared_with_a_tokenizer_without_a_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer: Any = SimpleNamespace(vocab_size=10, special_ids=frozenset({5}), files={}, bos_id=None, eos_id=5)
    config: Any = SimpleNamespace(vocab_size=10)
    monkeypatch.setattr("lemur_ray.weights.open_model.raw_config", lambda folder: {"bos_token_id": 5})
    assert vocabulary_faults("model", tokenizer, config) == []
