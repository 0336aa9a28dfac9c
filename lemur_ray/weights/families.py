"""Model families of Hugging Face: how the fields of ``config.json`` map to ``ModelConfig``, by ``model_type``.

A family is a row of ``FAMILIES``. A field that is neither mapped nor known to change nothing is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lemur_ray.config import ModelConfig, RopeScaling


class HuggingFaceError(ValueError):
    """A Hugging Face folder is inconsistent or holds a model that is not supported; the message says why."""


class UnsupportedModel(HuggingFaceError):
    """Raised for a sound ``config.json`` of a model that is not supported; the message names the fields."""


ELSEWHERE = (
    "jobs/serve.py --engine vllm serves such a model on GPUs, and --policy openai:URL evaluates it behind any server"
)
"""What works with a model that is refused."""

FIELDS = {
    "vocab_size": "vocab_size", "num_hidden_layers": "num_layers", "hidden_size": "dim", "intermediate_size": "ffn_dim",
    "num_attention_heads": "num_heads", "num_key_value_heads": "num_kv_heads", "head_dim": "head_dim",
    "max_position_embeddings": "max_seq_len", "rms_norm_eps": "norm_eps", "tie_word_embeddings": "tie_embeddings",
}  # fmt: skip
"""Field of ``config.json`` -> field of ModelConfig, in all families."""
HARMLESS = (
    "_name_or_path", "architectures", "attention_dropout", "attn_implementation", "_attn_implementation",
    "bos_token_id", "cache_implementation", "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label",
    "initializer_range", "is_encoder_decoder", "label2id", "max_window_layers", "model_type", "output_attentions",
    "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type", "return_dict", "rope_parameters",
    "rope_scaling", "rope_theta", "task_specific_params", "torch_dtype", "torchscript", "transformers_version",
    "unsloth_fixed", "unsloth_version", "use_cache",
)  # fmt: skip
"""Fields of ``config.json`` that change nothing that is computed here, or that are read elsewhere."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok")
_DENSE = {"attention_bias": (False,), "hidden_act": ("silu",)}
_QWEN = {**_DENSE, "use_sliding_window": (False,), "use_mrope": (False,)}
_ROPE = ("rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
         "original_max_position_embeddings", "partial_rotary_factor")  # fmt: skip


class Family(NamedTuple):
    """One ``model_type``: what all its models have in common, and which further fields its ``config.json`` has."""

    architecture: str
    constants: Mapping[str, tuple[Any, ...]]
    """Field of ``config.json`` -> values for which the model is computed as here; absent or null passes too."""
    switches: Mapping[str, Any] = {}
    """Field of ModelConfig -> its value in all models of the family."""
    defaults: Mapping[str, Any] = {}
    """Values of fields that a ``config.json`` may leave out."""
    ignored: tuple[str, ...] = ()
    """Further fields of ``config.json`` without effect, given the constants."""


FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM", {**_DENSE, "mlp_bias": (False,)}),
    "mistral": Family("MistralForCausalLM", {**_DENSE, "sliding_window": ()}, defaults={"sliding_window": 4096}),
    "qwen2": Family("Qwen2ForCausalLM", _QWEN, {"qkv_bias": True}, ignored=("sliding_window",)),
    "qwen3": Family(
        "Qwen3ForCausalLM", _QWEN, {"qk_norm": True}, defaults={"head_dim": 128}, ignored=("sliding_window",)
    ),
}


def config_of(raw: dict[str, Any], path: str) -> ModelConfig:
    """ModelConfig of the content of a ``config.json``. path: of the file, for messages.

    Both spellings of the rotary embedding are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``.
    Raises UnsupportedModel naming every field that is not supported, KeyError for a field that is missing.
    """
    _refuse_kinds(raw, path)
    family = FAMILIES[raw["model_type"]]
    raw = {**family.defaults, **raw}
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if wrong := _wrong_fields(raw, rope, family):
        raise UnsupportedModel(f"{path}: {'; '.join(wrong)}: {ELSEWHERE}")
    given = {ours: raw[theirs] for theirs, ours in FIELDS.items() if raw.get(theirs) is not None}
    optional = {
        "num_kv_heads": raw["num_attention_heads"], "head_dim": raw["hidden_size"] // raw["num_attention_heads"],
        "norm_eps": 1e-6, "tie_embeddings": False,
    }  # fmt: skip
    for theirs, ours in FIELDS.items():
        if ours not in given and ours not in optional:
            raise KeyError(theirs)
    return ModelConfig(
        **optional | given,
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
        rope_scaling=_scaling(rope, raw["max_position_embeddings"]),
        family=raw["model_type"],
        **family.switches,
    )


def _refuse_kinds(raw: dict[str, Any], path: str) -> None:
    """Raise UnsupportedModel for quantised weights, a mixture of experts, a vision model or an unknown model_type."""
    kind = raw.get("model_type")
    why = ""
    if quantised := raw.get("quantization_config"):
        method = quantised.get("quant_method", "") if isinstance(quantised, dict) else ""
        why = f"quantization_config is {quantised!r}: the weights are quantised{f' by {method}' if method else ''}, "
        why += "expected bfloat16, float16 or float32; the model that they were made from may be supported"
    elif experts := [name for name in EXPERTS if raw.get(name) is not None]:
        why = f"{experts[0]} is {raw[experts[0]]!r}: a {kind} model is a mixture of experts"
    elif isinstance(text := raw.get("text_config"), dict) or "vision_config" in raw:
        part = text.get("model_type", "llama") if isinstance(text, dict) else "language"
        why = f"model_type is {kind!r}, a model of images and text: expected its text part alone ({part}, text_config)"
    elif kind not in FAMILIES:
        why = f"model_type is {kind!r}, expected {' or '.join(map(repr, FAMILIES))}"
    if why:
        raise UnsupportedModel(f"{path}: {why}: {ELSEWHERE}")


def _wrong_fields(raw: dict[str, Any], rope: dict[str, Any], family: Family) -> list[str]:
    """One sentence for every field of a ``config.json`` that is not supported. rope: its rotary part."""
    constants = {**family.constants, "partial_rotary_factor": (1.0,), "layer_types": (["full_attention"],)}
    values = {**raw, "partial_rotary_factor": rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor")}
    if values.get("layer_types"):
        values["layer_types"] = sorted(set(values["layer_types"]))
    wrong = [
        f"{name} is {values[name]!r}, expected {' or '.join(map(repr, known)) or None}"
        for name, known in constants.items()
        if values.get(name) is not None and values[name] not in known
    ]
    if (kind := _kind(rope)) not in ("default", "linear", "llama3"):
        wrong.append(f"rope type is {kind!r}, expected 'default', 'linear' or 'llama3'")
    known = {*FIELDS, *HARMLESS, *constants, *family.ignored}
    wrong += [
        f"{name} is {value!r}, a field that a {raw['model_type']} model is not known to have"
        for name, value in raw.items()
        if value is not None and name not in known
    ]
    return wrong + [f"{name} of the rotary embedding is {rope[name]!r}" for name in rope if name not in _ROPE]


def _kind(rope: dict[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _scaling(rope: dict[str, Any], max_seq_len: int) -> RopeScaling:
    """Scaling of the rotary embedding from its part of ``config.json``. Raises KeyError for a missing number."""
    if _kind(rope) == "linear":
        return RopeScaling("linear", float(rope["factor"]))
    if _kind(rope) == "llama3":
        return RopeScaling(
            "llama3", float(rope["factor"]), float(rope["low_freq_factor"]), float(rope["high_freq_factor"]),
            int(rope.get("original_max_position_embeddings") or max_seq_len),
        )  # fmt: skip
    return RopeScaling()


def fields_of(config: ModelConfig) -> dict[str, Any]:
    """Fields of ``config.json`` for a model, as transformers and vLLM read them; inverse of ``config_of``.

    Raises HuggingFaceError if the switches of the model are those of no family.
    """
    name = _written_as(config)
    family = FAMILIES[name]
    constants = {field: values[0] if values else None for field, values in family.constants.items()}
    return {
        "architectures": [family.architecture], "model_type": name,
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.items()}, **_rope_fields(config), **constants,
    }  # fmt: skip


def _written_as(config: ModelConfig) -> str:
    """The model's own family if its switches are those of the family, else the first whose switches they are."""
    off = {name: False for family in FAMILIES.values() for name in family.switches}
    for name in (config.family, *FAMILIES):
        if all(getattr(config, field) == value for field, value in (off | dict(FAMILIES[name].switches)).items()):
            return name
    on = ", ".join(field for field in off if getattr(config, field))
    raise HuggingFaceError(f"no family of Hugging Face has {on} together: such a model cannot be written for it")


def _rope_fields(config: ModelConfig) -> dict[str, Any]:
    """Rotary fields of ``config.json`` in two spellings: for transformers 4, vLLM and others; for transformers 5."""
    scaling = config.rope_scaling
    fields: dict[str, Any] = {"rope_type": "default"}
    if scaling.kind != "none":
        fields = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "llama3":
        fields |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_seq_len,
        }
    old = {} if scaling.kind == "none" else {"rope_scaling": fields}
    return {"rope_theta": config.rope_theta, **old, "rope_parameters": {**fields, "rope_theta": config.rope_theta}}
