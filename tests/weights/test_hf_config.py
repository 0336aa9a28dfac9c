"""config.json of a model folder: read in both spellings, written for both, everything else refused by name."""

import dataclasses
import json
from pathlib import Path

import pytest

from lemur_ray.config import ModelConfig, RopeScaling
from lemur_ray.weights.hf_config import HuggingFaceError, config_files, read_config

CONFIG = ModelConfig(
    vocab_size=264, num_layers=2, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=2, head_dim=8, max_seq_len=64
)
LLAMA3 = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
SCALINGS = {"none": RopeScaling(), "linear": RopeScaling("linear", 4.0), "llama3": LLAMA3}


def write(folder: Path, raw: dict[str, object]) -> Path:
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("spelling", ["both", "old", "new"])
def test_rope_scaling_survives_both_spellings(name: str, spelling: str, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, rope_theta=5e5, rope_scaling=SCALINGS[name])
    raw = json.loads(config_files(config, None, "bfloat16")["config.json"])
    if spelling == "old":
        del raw["rope_parameters"]
    if spelling == "new":
        raw = {key: value for key, value in raw.items() if key not in ("rope_theta", "rope_scaling")}
    assert read_config(write(tmp_path, raw)) == config


@pytest.mark.parametrize("name", SCALINGS)
def test_transformers_reads_and_writes_the_same_rope(name: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    config = dataclasses.replace(CONFIG, rope_theta=5e5, rope_scaling=SCALINGS[name])
    write(tmp_path, json.loads(config_files(config, None, "bfloat16")["config.json"]))
    theirs = AutoConfig.from_pretrained(str(tmp_path))
    assert theirs.rope_parameters["rope_theta"] == 5e5
    assert theirs.rope_parameters["rope_type"] == {"none": "default"}.get(name, name)
    theirs.save_pretrained(str(tmp_path / "again"))
    assert read_config(tmp_path / "again") == config


def test_published_configs_are_read(tmp_path: Path) -> None:
    """The fields that decide the shape in the config.json of Llama 3.1 8B and of Code Llama 34B."""
    llama31 = {
        "model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": 128256,
    }  # fmt: skip
    found = read_config(write(tmp_path, llama31))
    assert (found.rope_scaling, found.head_dim, found.num_params) == (LLAMA3, 128, 8_030_261_248)
    code = {**llama31, "rope_scaling": None, "rope_theta": 1000000, "hidden_size": 8192, "intermediate_size": 22016}
    code |= {"num_hidden_layers": 48, "num_attention_heads": 64, "vocab_size": 32000, "max_position_embeddings": 16384}
    found = read_config(write(tmp_path, code))
    assert (found.rope_theta, found.rope_scaling, found.num_params) == (1e6, RopeScaling(), 33_743_970_304)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("model_type", "mistral", "model_type is 'mistral'"),
        ("attention_bias", True, "attention_bias is True"),
        ("mlp_bias", True, "mlp_bias is True"),
        ("hidden_act", "gelu", "hidden_act is 'gelu'"),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0}, "rope type is 'yarn'"),
        ("rope_parameters", {"rope_type": "dynamic", "factor": 4.0}, "rope type is 'dynamic'"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5"),
        ("quantization_config", {"bits": 4}, "quantization_config is"),
    ],
)
def test_a_model_of_another_family_is_refused_by_name(field: str, value: object, named: str, tmp_path: Path) -> None:
    raw = json.loads(config_files(CONFIG, None, "float32")["config.json"])
    with pytest.raises(HuggingFaceError, match=named):
        read_config(write(tmp_path, {**raw, field: value}))


def test_a_config_that_is_damaged_or_incomplete_says_so(tmp_path: Path) -> None:
    raw = json.loads(config_files(CONFIG, None, "float32")["config.json"])
    with pytest.raises(HuggingFaceError, match="lacks 'hidden_size'"):
        read_config(write(tmp_path, {key: value for key, value in raw.items() if key != "hidden_size"}))
    with pytest.raises(HuggingFaceError, match="lacks 'low_freq_factor'"):
        read_config(write(tmp_path, {**raw, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}}))
    (tmp_path / "config.json").write_text('{"model_type": "lla')
    with pytest.raises(HuggingFaceError, match="is not JSON"):
        read_config(tmp_path)
