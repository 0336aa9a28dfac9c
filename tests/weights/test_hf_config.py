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
YARN = RopeScaling("yarn", 4.0, original_max_seq_len=32_768, attention_factor=1.25)
SCALINGS = {"none": RopeScaling(), "linear": RopeScaling("linear", 4.0), "llama3": LLAMA3, "yarn": YARN}


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
        ("model_type", "phi3", r"model_type is 'phi3', expected 'llama' or .*--engine vllm .*--policy openai:URL"),
        ("sliding_window", 4096, "sliding_window is 4096, a field that a llama model is not known to have"),
        ("residual_multiplier", 0.22, "residual_multiplier is 0.22, a field"),
        ("num_local_experts", 8, "num_local_experts is 8: a llama model is a mixture of experts"),
        (
            "text_config",
            {"model_type": "gemma3_text"},
            r"of images and text: expected its text part .*, a gemma3_text m",
        ),
        (
            "text_config",
            {"model_type": "qwen2_5_vl_text"},
            r"text part alone \(qwen2_5_vl_text, text_.*, a qwen2 model",
        ),
        ("text_config", {"model_type": "gemma4_text"}, r"its text part \(gemma4_text, .* is not supported either"),
        ("attention_bias", True, "attention_bias is True"),
        ("mlp_bias", True, "mlp_bias is True"),
        ("hidden_act", "gelu", "hidden_act is 'gelu'"),
        ("rope_parameters", {"rope_type": "longrope", "factor": 4.0}, "rope type is 'longrope'"),
        ("rope_parameters", {"rope_type": "default", "mrope_section": [16]}, r"mrope_section of the rotary embedding"),
        ("rope_parameters", {"rope_type": "dynamic", "factor": 4.0}, "rope type is 'dynamic'"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5"),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}, "the weights are quantised by gptq"),
    ],
)
def test_a_model_of_another_family_is_refused_by_name(field: str, value: object, named: str, tmp_path: Path) -> None:
    raw = json.loads(config_files(CONFIG, None, "float32")["config.json"])
    with pytest.raises(HuggingFaceError, match=named):
        read_config(write(tmp_path, {**raw, field: value}))


def test_a_model_of_images_whose_text_fields_lie_beside_is_refused_with_the_family_of_its_text(tmp_path: Path) -> None:
    """As in the config.json of Qwen 2 VL."""
    raw = {**json.loads(config_files(CONFIG, None, "float32")["config.json"]), "model_type": "qwen2_vl"}
    expected = r"'qwen2_vl', a model of images and text: .*\(.*, the fields beside vision_config\), a qwen2 model"
    with pytest.raises(HuggingFaceError, match=expected):
        read_config(write(tmp_path, {**raw, "vision_config": {"depth": 32}}))


def test_published_configs_of_other_families_are_read(tmp_path: Path) -> None:
    """The fields that decide the shape in the config.json of Qwen 2.5 7B, Mistral 7B v0.1 and Gemma 3 1B."""
    qwen = {
        "model_type": "qwen2", "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 3584,
        "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28, "rms_norm_eps": 1e-06,
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rope_theta": 1000000.0,
        "sliding_window": 131072, "tie_word_embeddings": False, "use_mrope": False, "use_sliding_window": False,
        "vocab_size": 152064,
    }  # fmt: skip
    config = read_config(write(tmp_path, qwen))
    assert (config.qkv_bias, config.window, config.head_dim, config.num_params) == (True, 0, 128, 7_615_616_512)
    with pytest.raises(HuggingFaceError, match="use_sliding_window is True, expected False"):
        read_config(write(tmp_path, {**qwen, "use_sliding_window": True}))
    with pytest.raises(HuggingFaceError, match=r"layer_types is \['sliding_attention'.* expected \['full_attention'"):
        read_config(write(tmp_path, {**qwen, "layer_types": ["sliding_attention"] * 28}))
    mistral = {**qwen, "model_type": "mistral", "sliding_window": 4096, "num_attention_heads": 32}
    mistral = {name: value for name, value in mistral.items() if not name.startswith("use_")}
    assert [read_config(write(tmp_path, mistral)).window_of(layer) for layer in (0, 27)] == [4096, 4096]
    gemma = {
        "model_type": "gemma3_text", "attention_bias": False, "attn_logit_softcapping": None, "head_dim": 256,
        "cache_implementation": "hybrid", "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4,
        "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512,
        "sliding_window_pattern": 6, "vocab_size": 262144,
    }  # fmt: skip
    config = read_config(write(tmp_path, gemma))
    assert (config.rope_theta, config.local_rope_theta, config.num_params) == (1e6, 1e4, 999_885_952)
    assert [layer for layer in range(26) if not config.window_of(layer)] == [5, 11, 17, 23]


def test_switches_that_no_family_has_together_cannot_be_written() -> None:
    config = dataclasses.replace(CONFIG, qkv_bias=True, qk_norm=True)
    with pytest.raises(HuggingFaceError, match="no family of Hugging Face has qkv_bias True, qk_norm True"):
        config_files(config, None, "float32")
    assert json.loads(config_files(dataclasses.replace(CONFIG, window=9), None, "float32")["config.json"])[
        "model_type"
    ] == "mistral"  # fmt: skip


def test_two_spellings_of_the_rotary_embedding_must_agree(tmp_path: Path) -> None:
    """A scaling added by hand to a config.json with ``rope_parameters`` is not dropped."""
    raw = json.loads(config_files(CONFIG, None, "float32")["config.json"])
    raw |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_scaling": {"type": "default"}}
    assert read_config(write(tmp_path, raw)).rope_scaling.kind == "none"
    with pytest.raises(HuggingFaceError, match=r"rope_scaling is \{'type': 'yarn'.* beside other rope_parameters"):
        read_config(write(tmp_path, {**raw, "rope_scaling": {"type": "yarn", "factor": 4.0}}))
    with pytest.raises(HuggingFaceError, match="beside other rope_parameters"):
        read_config(write(tmp_path, {**raw, "rope_scaling": "yarn"}))
    linear = {"rope_type": "linear", "factor": 2.0}
    raw["rope_parameters"] = {**linear, "rope_theta": 1e4}
    assert read_config(write(tmp_path, {**raw, "rope_scaling": linear})).rope_scaling.factor == 2.0
    with pytest.raises(HuggingFaceError, match="beside other rope_parameters"):
        read_config(write(tmp_path, {**raw, "rope_scaling": {**linear, "factor": 4.0}}))


def test_fields_of_older_published_configs_that_change_nothing_are_read(tmp_path: Path) -> None:
    """Llama 1 (max_sequence_length) and folders written by transformers 4.46 to 4.51."""
    raw = json.loads(config_files(CONFIG, None, "float32")["config.json"])
    older = {"_attn_implementation_autoset": True, "max_sequence_length": 2048, "tokenizer_class": "LlamaTokenizer"}
    assert read_config(write(tmp_path, raw | older)) == read_config(write(tmp_path, raw))


def test_a_config_that_is_damaged_or_incomplete_says_so(tmp_path: Path) -> None:
    raw = json.loads(config_files(CONFIG, None, "float32")["config.json"])
    with pytest.raises(HuggingFaceError, match="lacks 'hidden_size'"):
        read_config(write(tmp_path, {key: value for key, value in raw.items() if key != "hidden_size"}))
    with pytest.raises(HuggingFaceError, match="lacks 'low_freq_factor'"):
        read_config(write(tmp_path, {**raw, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}}))
    (tmp_path / "config.json").write_text('{"model_type": "lla')
    with pytest.raises(HuggingFaceError, match="is not JSON"):
        read_config(tmp_path)
