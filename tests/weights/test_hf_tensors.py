"""Hugging Face folders: bits come back, transformers reads ours, damage is named."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, init_params
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.hf_config import HuggingFaceError, read_config
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.open_model import open_model
from lemur_ray.weights.safetensors_reader import INDEX, SINGLE, TensorFileError, TensorFolder
from tests.model.logits import logits
from tests.text.prompts import encode_prompt
from tests.weights.whole_models import whole, write_model

CONFIG = ModelConfig(
    vocab_size=264, num_layers=2, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=2, head_dim=8, max_seq_len=64
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.bytes_only()


@pytest.fixture(scope="module")
def params() -> Params:
    return jax.tree.map(np.asarray, init_params(CONFIG, 1))


def read(folder: Path, config: ModelConfig) -> Params:
    return whole(HuggingFaceWeights(folder, config))


def same(a: Params, b: Params) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def test_export_and_import_give_back_every_bit(params: Params, tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_model(params, CONFIG, tokenizer, tmp_path / "f32")
    assert read_config(tmp_path / "f32") == CONFIG
    assert same(read(tmp_path / "f32", CONFIG), params)
    rounded = jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), params)
    write_model(params, CONFIG, tokenizer, tmp_path / "bf16", dtype="bfloat16")
    once = read(tmp_path / "bf16", CONFIG)
    assert same(once, rounded)
    write_model(once, CONFIG, tokenizer, tmp_path / "again", dtype="bfloat16")
    assert (tmp_path / "again" / SINGLE).read_bytes() == (tmp_path / "bf16" / SINGLE).read_bytes()


def test_several_files_have_an_index_and_read_the_same(params: Params, tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_model(params, CONFIG, tokenizer, tmp_path, max_file_bytes=40_000)
    files = set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values())
    assert len(files) > 2
    assert all((tmp_path / name).stat().st_size < 60_000 for name in files)
    assert same(read(tmp_path, CONFIG), params)
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(TensorFileError, match=r"names files that are not there: model-00002"):
        read(tmp_path, CONFIG)


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_generates_the_same_greedy_tokens(tied: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = dataclasses.replace(CONFIG, tie_embeddings=tied)
    params = jax.tree.map(lambda x: np.asarray(x) * 2, init_params(config, 3))
    write_model(params, config, tokenizer, tmp_path)
    messages = [Message("system", "Be brief."), Message("user", "Say  hi\nnow ")]
    prompt = encode_prompt(tokenizer, messages)
    theirs = AutoTokenizer.from_pretrained(str(tmp_path))
    rendered = theirs.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in messages], add_generation_prompt=True, return_dict=False
    )
    assert rendered == prompt
    ids = prompt[-40:]
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path), dtype=torch.float32).eval()
    out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=8, do_sample=False)
    expected = out[0, len(ids) :].tolist()
    length = len(ids) + 8
    step = jax.jit(
        lambda tokens: logits(params, config, tokens[None], np.ones((1, length), np.int32), np.arange(length)[None])[
            0
        ].argmax(-1)
    )
    row = np.zeros(length, np.int32)
    row[: len(ids)] = ids
    for at in range(len(ids), length):
        row[at] = int(step(row)[at - 1])
    assert row[len(ids) :].tolist()[: len(expected)] == expected


def damage(folder: Path, name: str, change: object) -> None:
    """Rewrite one tensor of a single-file export in place."""
    files = TensorFolder(folder)
    stored = files.stored(name)
    begin, end = stored.begin, stored.begin + int(np.prod(stored.shape)) * stored.dtype.itemsize
    raw = bytearray((folder / SINGLE).read_bytes())
    raw[begin:end] = change(bytes(raw[begin:end]))  # type: ignore[operator]
    (folder / SINGLE).write_bytes(raw)


def test_damage_is_named(params: Params, tokenizer: Tokenizer, tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        write_model(params, CONFIG, tokenizer, tmp_path / name)
        return tmp_path / name

    folder = fresh("nan")
    damage(folder, "model.layers.1.mlp.up_proj.weight", lambda raw: raw[:-4] + np.float32(np.nan).tobytes())
    with pytest.raises(HuggingFaceError, match=r"layers.1.mlp.up_proj.weight .* holds NaN"):
        read(folder, CONFIG)

    folder = fresh("short")
    raw = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(raw[:-100])
    with pytest.raises(TensorFileError, match="is truncated"):
        read(folder, CONFIG)
    (folder / SINGLE).write_bytes(raw[:50])
    with pytest.raises(TensorFileError, match="cut inside its header"):
        read(folder, CONFIG)

    folder = fresh("missing")
    with pytest.raises(TensorFileError, match=r"no tensor 'model.layers.2"):
        read(folder, dataclasses.replace(CONFIG, num_layers=3))
    with pytest.raises(HuggingFaceError, match=r"embed_tokens.weight .* do not belong together"):
        read(folder, dataclasses.replace(CONFIG, vocab_size=300))
    with pytest.raises(HuggingFaceError, match=r"holds tensors .*layers.1.* do not belong together"):
        read(folder, dataclasses.replace(CONFIG, num_layers=1))
    (folder / SINGLE).unlink()
    with pytest.raises(TensorFileError, match="expected safetensors weights"):
        read(folder, CONFIG)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.pop("dtype"),
        lambda entry: entry.pop("data_offsets"),
        lambda entry: entry.update(shape=3),
        lambda entry: entry.update(data_offsets=[-128, entry["data_offsets"][1] - entry["data_offsets"][0] - 128]),
    ],
)
def test_a_damaged_header_is_named(
    change: Callable[[dict], object], params: Params, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_model(params, CONFIG, tokenizer, tmp_path / "x")
    raw = (tmp_path / "x" / SINGLE).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    change(header["model.norm.weight"])
    text = json.dumps(header).encode()
    (tmp_path / "x" / SINGLE).write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
    with pytest.raises(TensorFileError, match=r"its header .* copy it again"):
        read(tmp_path / "x", CONFIG)


@pytest.mark.parametrize(
    "text", ["[]", "null", '{"model_type": "llama", "rope_scaling": "x"}', '{"rope_parameters": 3}']
)
def test_a_config_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(HuggingFaceError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_tokenizer_larger_than_the_model_is_refused_with_both_numbers(
    params: Params, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(HuggingFaceError, match="they do not fit"):
        write_model(params, dataclasses.replace(CONFIG, vocab_size=200), tokenizer, tmp_path / "x")
    small = dataclasses.replace(CONFIG, vocab_size=tokenizer.vocab_size - 2)
    cut = {**params, "embed": params["embed"][: small.vocab_size], "head": params["head"][:, : small.vocab_size]}
    write_model(cut, small, None, tmp_path / "y")
    tokenizer.save(tmp_path / "y" / "tokenizer.json")
    both = f"ids for {tokenizer.vocab_size} tokens, the model {small.vocab_size} rows"
    with pytest.raises(HuggingFaceError, match=both):
        open_model(str(tmp_path / "y"))


def test_a_tokenizer_of_another_family_is_named(params: Params, tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_model(params, CONFIG, tokenizer, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    ordinary = next(i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids)
    changed = {"bos_token_id": None, "eos_token_id": [ordinary, 5000]}
    (tmp_path / "config.json").write_text(json.dumps(raw | changed))
    with pytest.raises(HuggingFaceError, match=rf"names {ordinary}, 5000 .* of another family than the weights"):
        open_model(str(tmp_path))
