"""Which class ``transformers`` 5 reads a folder's tokenizer with, and what that class makes of ``tokenizer.json``.

Some classes keep a file's vocabulary and put steps of their own around it, whatever the file says. The class is the
one that a folder names, unless its ``config.json`` is of a type whose folders are known to name a wrong one, or whose
files are taken as they are (``AutoTokenizer.from_pretrained``). Knows nothing of special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

AS_FILED = "PreTrainedTokenizerFast"
"""The class that takes a file as it is."""

_OF_TYPES = {
    AS_FILED: """EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5
        ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2
        gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax
        hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava llava_next
        mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3 mistral
        mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2 nemo_speechlm nemotron nvfp4
        nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe
        pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 vipllava voxtral voxtral_realtime
        xlm-roberta-xl""",
    "GPT2Tokenizer": """blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip
        instructblipvideo jais2 opt phi starcoder2""",
    "Qwen2Tokenizer": """audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr
        moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3
        qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice""",
    "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp",
    "GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
    "LlamaTokenizer": "idefics idefics2",
}
REGISTERED = {kind: name for name, kinds in _OF_TYPES.items() for kind in kinds.split()}
"""``model_type`` -> class, for the classes that are known here and are ever taken instead of the one that is named."""

_MISNAMED = """arctic camembertv2-base chatlm cohere_asr ernie4_5 ernie4_5_moe fuyu h2ovl_chat hyperclovax
    hyperclovax_vision_v2 hyperclovax_vlm internlm2 internlm3 iquestcoder jamba llava llava_next minicpm3 minicpmv
    minimax_m2 modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 opencua openvla paddleocr_vl phi3 phi3_v phimoe
    qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2 smolvlm step3_vl vipllava"""
MISNAMED = frozenset(_MISNAMED.split())
"""Types whose folders name a class that is not theirs."""

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PLAIN_BPE = {
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
_WORDS = {"GPT2Tokenizer": "", "GPTNeoXTokenizer": "", "Qwen2Tokenizer": _QWEN2, "Qwen3_5Tokenizer": _QWEN3_5}
"""Class of bytes -> how it parts a text before; empty: as GPT-2."""
_LLAMA = ("LlamaTokenizer", "CodeLlamaTokenizer")
"""Those of SentencePiece."""


def class_in(config: Mapping[str, Any], model: Mapping[str, Any], tokenizer_json: str) -> str:
    """The class that a folder is read with, ``AS_FILED`` for every one that takes the file as it is.

    config, model: what ``tokenizer_config.json`` and ``config.json`` say, either may be empty.
    """
    named = str(config.get("tokenizer_class") or model.get("tokenizer_class") or "").removesuffix("Fast")
    kind = str(model.get("model_type") or "") if not config.get("auto_map") else ""
    registered = REGISTERED.get(kind, "")
    if named in _LLAMA and '"ByteLevel"' in tokenizer_json and kind not in MISNAMED:
        found = AS_FILED  # Llama 3 names the class of Llama 2
    elif not named or registered == AS_FILED or (registered and kind in MISNAMED):
        found = registered
    else:
        found = named
    return found if found in _WORDS or found in _LLAMA else AS_FILED


def as_read(tokenizer_json: str, config: Mapping[str, Any]) -> str:
    """A ``tokenizer.json`` as the class that its ``config`` names reads it; the same text where that is as it is."""
    kind = class_in(config, {}, tokenizer_json)
    raw = json.loads(tokenizer_json) if kind != AS_FILED else {}
    if not raw or raw["model"].get("type", "BPE") != "BPE":
        return tokenizer_json
    if kind in _WORDS:
        _as_bytes(raw, kind, config)
    else:
        _as_llama(raw, kind, config)
    return json.dumps(raw, ensure_ascii=False)


def _as_llama(raw: dict[str, Any], kind: str, config: Mapping[str, Any]) -> None:
    """Blanks are marks, and one stands before the text, or before every part."""
    prefix = config.get("add_prefix_space") is not False
    scheme = "never" if not prefix else "always" if config.get("legacy") and kind == "LlamaTokenizer" else "first"
    raw["normalizer"] = None
    raw["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    raw["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *(strip if prefix or kind != "LlamaTokenizer" else []),
        ],
    }
    raw["model"] |= {"fuse_unk": True, "byte_fallback": True, "dropout": None}


def _as_bytes(raw: dict[str, Any], kind: str, config: Mapping[str, Any]) -> None:
    """Every byte is a character of the vocabulary; words are parted as the class does."""
    words = _WORDS[kind]
    prefix = bool(config.get("add_prefix_space"))
    step = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": not words}
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    raw["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, step]} if words else step
    raw["normalizer"] = None if kind == "GPT2Tokenizer" else {"type": "NFC"}
    raw["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if kind == "GPTNeoXTokenizer":  # the settings, which are not read where there is a file, count instead
        only = [{"Sequence": {"id": "A", "type_id": 0}}]
        pair = [*only, {"Sequence": {"id": "B", "type_id": 1}}]
        raw["post_processor"] = {"type": "TemplateProcessing", "single": only, "pair": pair, "special_tokens": {}}
    raw["model"] |= _PLAIN_BPE
