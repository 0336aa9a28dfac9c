"""Model families of Hugging Face: how the fields of ``config.json`` map to ``ModelConfig``, by ``model_type``.

A family is a row of ``FAMILIES``. A field that is neither mapped nor known to change nothing is refused by its name."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from lemur_ray.config import ModelConfig, RopeScaling


class HuggingFaceError(ValueError):
    """Raised if a Hugging Face folder is inconsistent or holds a model that is not supported; the message says why."""


class UnsupportedModel(HuggingFaceError):
    """Raised for a sound ``config.json`` of a model that is not supported; the message names the fields."""


ELSEWHERE = (
    "jobs/serve.py --engine vllm serves such a model on GPUs, and --policy openai:URL evaluates it behind any server"
)
"""Advice in the error message about an unsupported model."""
FIELDS = {
    "vocab_size": "vocab_size", "num_hidden_layers": "num_layers", "hidden_size": "dim", "intermediate_size": "ffn_dim",
    "num_attention_heads": "num_heads", "num_key_value_heads": "num_kv_heads", "head_dim": "head_dim",
    "max_position_embeddings": "max_seq_len", "rms_norm_eps": "norm_eps", "tie_word_embeddings": "tie_embeddings",
}  # fmt: skip
"""Field of ``config.json`` -> field of ModelConfig, in all families."""
HARMLESS = (
    "_name_or_path", "architectures", "attention_dropout", "attn_implementation", "_attn_implementation",
    "_attn_implementation_autoset", "max_sequence_length", "tokenizer_class",
    "bos_token_id", "cache_implementation", "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label",
    "initializer_range", "is_encoder_decoder", "label2id", "max_window_layers", "model_type", "output_attentions",
    "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type", "return_dict", "rope_parameters",
    "rope_scaling", "rope_theta", "task_specific_params", "torch_dtype", "torchscript", "transformers_version",
    "unsloth_fixed", "unsloth_version", "use_cache",
)  # fmt: skip
"""Fields of ``config.json`` that change nothing that is computed here, or that are read elsewhere."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok")
_TEXT_PARTS = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
"""model_type of the text part of a model of images -> the family that it is for text alone."""
_SWITCHES = {
    "qkv_bias": False, "qk_norm": False, "activation": "silu", "norm_offset": False, "post_norms": False,
    "embed_scale": False, "window": 0, "local_rope_theta": 0.0, "query_scalar": 0, "attention_cap": 0.0,
    "logit_cap": 0.0,
}  # fmt: skip
"""Fields of ModelConfig in which families differ, with their values in a family that does not name them."""
_GELU = {"attention_bias": (False,), "hidden_activation": ("gelu_pytorch_tanh",), "hidden_act": ("gelu_pytorch_tanh",),
         "use_bidirectional_attention": (False,)}  # fmt: skip
_GEMMA = {"activation": "gelu_tanh", "norm_offset": True, "post_norms": True, "embed_scale": True}
_GEMMA_FIELDS = {
    "sliding_window": "window", "sliding_window_pattern": "global_every", "query_pre_attn_scalar": "query_scalar",
    "final_logit_softcapping": "logit_cap",
}  # fmt: skip
_GEMMA_DEFAULTS = {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": True}
_DENSE = {"attention_bias": (False,), "hidden_act": ("silu",)}
_QWEN = {**_DENSE, "use_sliding_window": (False,), "use_mrope": (False,)}
_ROPE = ("rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
         "original_max_position_embeddings", "partial_rotary_factor", "beta_fast", "beta_slow", "attention_factor",
         "mscale", "mscale_all_dim", "truncate")  # fmt: skip
"""Fields of the rotary part of ``config.json`` that are read."""
_KINDS = ("default", "linear", "llama3", "yarn")


class Family(NamedTuple):
    """One ``model_type``: what all its models have in common, and which further fields its ``config.json`` has."""

    architecture: str
    constants: Mapping[str, tuple[Any, ...]]
    """Field of ``config.json`` -> values for which the model is computed as here; absent or null passes too."""
    switches: Mapping[str, Any] = {}
    """Field of ModelConfig -> its value in all models of the family."""
    fields: Mapping[str, str] = {}
    """Field of ``config.json`` besides ``FIELDS`` -> field of ModelConfig; null is 0."""
    defaults: Mapping[str, Any] = {}
    """Values of fields that a ``config.json`` may leave out."""
    ignored: tuple[str, ...] = ()
    """Further fields of ``config.json`` without effect, given the constants."""


FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM", {**_DENSE, "mlp_bias": (False,)}),
    "mistral": Family(
        "MistralForCausalLM", _DENSE, fields={"sliding_window": "window"}, defaults={"sliding_window": 4096}
    ),
    "qwen2": Family("Qwen2ForCausalLM", _QWEN, {"qkv_bias": True}, ignored=("sliding_window",)),
    "qwen3": Family(
        "Qwen3ForCausalLM", _QWEN, {"qk_norm": True}, defaults={"head_dim": 128}, ignored=("sliding_window",)
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM", _GELU, _GEMMA,
        {**_GEMMA_FIELDS, "attn_logit_softcapping": "attention_cap"},
        {**_GEMMA_DEFAULTS, "sliding_window_pattern": 2, "attn_logit_softcapping": 50.0,
         "final_logit_softcapping": 30.0},
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM", {**_GELU, "attn_logit_softcapping": ()}, {**_GEMMA, "qk_norm": True},
        {**_GEMMA_FIELDS, "rope_local_base_freq": "local_rope_theta"},
        {**_GEMMA_DEFAULTS, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6},
    ),
}  # fmt: skip


def config_of(raw: dict[str, Any], path: str) -> ModelConfig:
    """ModelConfig of the content of a ``config.json``. path: of the file, for messages.
    Both spellings of the rotary embedding are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``.
    Raises UnsupportedModel naming every field that is not supported, KeyError for a field that is missing."""
    _refuse_kinds(raw, path)
    family = FAMILIES[raw["model_type"]]
    raw, rope, local = _defaults_filled(raw, family)
    if wrong := _wrong_fields(raw, rope, local, family):
        raise UnsupportedModel(f"{path}: {'; '.join(wrong)}: {ELSEWHERE}")
    given = {ours: raw[theirs] for theirs, ours in FIELDS.items() if raw.get(theirs) is not None}
    optional = {
        "num_kv_heads": raw["num_attention_heads"], "head_dim": raw["hidden_size"] // raw["num_attention_heads"],
        "norm_eps": 1e-6, "tie_embeddings": False,
    }  # fmt: skip
    for theirs, ours in FIELDS.items():
        if ours not in given and ours not in optional:
            raise KeyError(theirs)
    default = ModelConfig()
    config = ModelConfig(
        **optional | given,
        **{ours: type(getattr(default, ours))(raw.get(theirs) or 0) for theirs, ours in family.fields.items()},
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
        rope_scaling=_scaling(rope, raw["max_position_embeddings"]),
        family=raw["model_type"],
        **family.switches,
    )
    return _with_layer_types(config, raw.get("layer_types"), family, path)


def _defaults_filled(raw: dict[str, Any], family: Family) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(``config.json`` with the family's defaults, its rotary part, the rotary part of layers with a window)."""
    raw = {**family.defaults, **raw}
    if "_sliding_window_pattern" in raw:  # as transformers 5 spells it
        raw["sliding_window_pattern"] = raw.pop("_sliding_window_pattern")
    rope, local = raw.get("rope_parameters") or raw.get("rope_scaling") or {}, dict[str, Any]()
    if "full_attention" in rope and "rope_local_base_freq" in family.fields:
        rope, local = rope["full_attention"], rope.get("sliding_attention") or {}
        raw["rope_local_base_freq"] = local.get("rope_theta") or raw["rope_local_base_freq"]
    return raw, rope, local


def _with_layer_types(config: ModelConfig, types: list[str] | None, family: Family, path: str) -> ModelConfig:
    """The config with the pattern of windows that gives these ``layer_types``. Raises UnsupportedModel if none does."""
    if not types:
        return config
    every = types.index("full_attention") + 1 if "full_attention" in types else 0
    patterns = (config.global_every, every) if "global_every" in family.fields.values() else (config.global_every,)
    for pattern in patterns:
        candidate = dataclasses.replace(config, global_every=pattern)
        if layer_types(candidate) == types:
            return candidate
    raise UnsupportedModel(
        f"{path}: layer_types is {types!r} with a window of {config.window or None}, expected {layer_types(config)!r}: "
        f"{ELSEWHERE}"
    )


def layer_types(config: ModelConfig) -> list[str]:
    """Kind of attention of each layer, "full_attention" or "sliding_attention", as in ``config.json``."""
    kinds = ("full_attention", "sliding_attention")
    return [kinds[config.window_of(layer) > 0] for layer in range(config.num_layers)]


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
        part, place = f"{kind}_text", "the fields beside vision_config"
        if isinstance(text, dict):
            part, place = text.get("model_type", "llama"), "text_config"
        media = "sound" if "audio_config" in raw and "vision_config" not in raw else "images"
        why = f"model_type is {kind!r}, a model of {media} and text: "
        if (family := _TEXT_PARTS.get(part, part)) in FAMILIES:
            why += f"expected its text part alone ({part}, {place}), a {family} model"
        else:
            why += f"its text part ({part}, {place}) is not supported either"
    elif kind not in FAMILIES:
        why = f"model_type is {kind!r}, expected {' or '.join(map(repr, FAMILIES))}"
    if why:
        raise UnsupportedModel(f"{path}: {why}: {ELSEWHERE}")


def _wrong_fields(raw: dict[str, Any], rope: dict[str, Any], local: dict[str, Any], family: Family) -> list[str]:
    """A sentence for every field of a ``config.json`` that is not supported. rope, local: of ``_defaults_filled``."""
    constants = {**family.constants, "partial_rotary_factor": (1.0,)}
    values = {**raw, "partial_rotary_factor": rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor")}
    wrong = [
        f"{name} is {values[name]!r}, expected {' or '.join(map(repr, known)) or None}"
        for name, known in constants.items()
        if values.get(name) is not None and values[name] not in known
    ]
    for part, kinds in ((rope, _KINDS), (local, _KINDS[:1])):
        if (kind := _kind(part)) not in kinds:
            wrong.append(f"rope type is {kind!r}, expected {' or '.join(map(repr, kinds))}")
    known = {*FIELDS, *HARMLESS, *constants, *family.fields, *family.defaults, *family.ignored, "layer_types"}
    wrong += [
        f"{name} is {value!r}, a field that a {raw['model_type']} model is not known to have"
        for name, value in raw.items()
        if value is not None and name not in known
    ]
    scaling = raw.get("rope_scaling") or {}
    scaling = scaling if isinstance(scaling, dict) else {"rope_type": scaling}
    old = {"rope_type" if name == "type" else name: value for name, value in scaling.items()}
    new = {"rope_type": _kind(rope), **rope}
    if raw.get("rope_parameters") and any(new.get(name) != value for name, value in old.items()):
        wrong.append(
            f"rope_scaling is {raw['rope_scaling']!r} beside other rope_parameters {raw['rope_parameters']!r}: keep one"
        )
    given = rope | local
    wrong += [f"{name} of the rotary embedding is {given[name]!r}" for name in given if name not in _ROPE]
    return wrong + (["truncate of the rotary embedding is False"] if rope.get("truncate") is False else [])


def _kind(rope: dict[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _scaling(rope: dict[str, Any], max_seq_len: int) -> RopeScaling:
    """Scaling of the rotary embedding from its part of ``config.json``. Raises KeyError for a missing number."""
    kind = _kind(rope)
    if kind == "default":
        return RopeScaling()
    factor, original = float(rope["factor"]), int(rope.get("original_max_position_embeddings") or max_seq_len)
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind == "llama3":
        return RopeScaling("llama3", factor, float(rope["low_freq_factor"]), float(rope["high_freq_factor"]), original)
    gain = rope.get("attention_factor") or 0.0
    if not gain and rope.get("mscale") and rope.get("mscale_all_dim"):
        gain = (0.1 * rope["mscale"] * math.log(factor) + 1) / (0.1 * rope["mscale_all_dim"] * math.log(factor) + 1)
    return RopeScaling(
        "yarn", factor, original_max_seq_len=original, beta_fast=float(rope.get("beta_fast") or 32),
        beta_slow=float(rope.get("beta_slow") or 1), attention_factor=float(gain),
    )  # fmt: skip


def fields_of(config: ModelConfig) -> dict[str, Any]:
    """Fields of ``config.json`` for a model, as transformers and vLLM read them; inverse of ``config_of``.
    Raises HuggingFaceError if the switches of the model are those of no family."""
    name = _written_as(config)
    family = FAMILIES[name]
    own = {theirs: getattr(config, ours) or None for theirs, ours in family.fields.items()}
    if "query_pre_attn_scalar" in own:
        own |= {"query_pre_attn_scalar": config.query_scalar or config.head_dim, "layer_types": layer_types(config)}
    constants = {field: values[0] if values else None for field, values in family.constants.items()}
    return {
        "architectures": [family.architecture], "model_type": name,
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.items()}, **_rope_fields(config), **own,
        **constants,
    }  # fmt: skip


def _written_as(config: ModelConfig) -> str:
    """The model's own family if its switches are those of the family, else the first whose switches they are."""
    for name in (config.family, *FAMILIES):
        switches = _SWITCHES | dict(FAMILIES[name].switches)
        switches |= {field: getattr(config, field) for field in FAMILIES[name].fields.values()}
        if all(getattr(config, field) == value for field, value in switches.items()):
            return name
    on = ", ".join(f"{field} {getattr(config, field)}" for field in _SWITCHES if getattr(config, field))
    raise HuggingFaceError(f"no family of Hugging Face has {on} together: such a model cannot be written for it")


def _rope_fields(config: ModelConfig) -> dict[str, Any]:
    """Rotary fields of ``config.json`` in two spellings: for transformers 4, vLLM and others; for transformers 5."""
    scaling = config.rope_scaling
    fields: dict[str, Any] = {"rope_type": "default"}
    if scaling.kind != "none":
        fields = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in ("llama3", "yarn"):
        fields["original_max_position_embeddings"] = scaling.original_max_seq_len
    if scaling.kind == "llama3":
        fields |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
    if scaling.kind == "yarn":
        fields |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
        fields |= {"attention_factor": scaling.attention_factor} if scaling.attention_factor else {}
    old = {} if scaling.kind == "none" else {"rope_scaling": fields}
    new = {**fields, "rope_theta": config.rope_theta}
    if config.local_rope_theta:
        local = {"rope_type": "default", "rope_theta": config.local_rope_theta}
        new = {"full_attention": new, "sliding_attention": local}
    return {"rope_theta": config.rope_theta, **old, "rope_parameters": new}
