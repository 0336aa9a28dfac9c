"""The tokenizer class that ``transformers`` 5 uses for a folder, and its changes to ``tokenizer.json``.

Some classes keep a file's vocabulary but replace the steps around it. The class is the one that a folder names, unless
the model type in its ``config.json`` is known to name a wrong class or to use files unchanged
(``AutoTokenizer.from_pretrained``). A class whose changes are not implemented here is rejected, as its ids would
differ."""

import json
import re
from collections.abc import Mapping
from typing import Any

AS_FILED = "PreTrainedTokenizerFast"
"""The class that uses ``tokenizer.json`` unchanged."""

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
    "GemmaTokenizer": """diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma
        shieldgemma2 t5gemma zaya""",
    "CohereTokenizer": "aya_vision cohere cohere2",
}
REGISTERED = {kind: name for name, kinds in _OF_TYPES.items() for kind in kinds.split()}
"""``model_type`` -> class that ``transformers`` registers for it and may use instead of the one in the folder."""

_MISNAMED = """arctic camembertv2-base chatlm cohere_asr ernie4_5 ernie4_5_moe fuyu h2ovl_chat hyperclovax
    hyperclovax_vision_v2 hyperclovax_vlm internlm2 internlm3 iquestcoder jamba llava llava_next minicpm3 minicpmv
    minimax_m2 modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 opencua openvla paddleocr_vl phi3 phi3_v phimoe
    qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2 smolvlm step3_vl vipllava"""
MISNAMED = frozenset(_MISNAMED.split())
"""Model types whose folders name a wrong class."""

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PLAIN_BPE = {
    "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
    "byte_fallback": False, "ignore_merges": False,
}  # fmt: skip
_DIGITS = {"type": "Digits", "individual_digits": True}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_WORDS: dict[str, dict[str, Any] | None] = {
    "GPT2Tokenizer": None,
    "GPTNeoXTokenizer": None,
    "Qwen2Tokenizer": _split(_QWEN2),
    "Qwen3_5Tokenizer": _split(_QWEN3_5),
    "CohereTokenizer": _DIGITS,
}
"""First pre-tokenizer of each byte-level class; None: that of GPT-2."""
_LLAMA = ("LlamaTokenizer", "CodeLlamaTokenizer")
_GEMMA = "GemmaTokenizer"
"""Classes with SentencePiece vocabularies."""

_REFUSED = """AlbertTokenizer BarthezTokenizer BartphoTokenizer BertJapaneseTokenizer BertTokenizer BertweetTokenizer
    BigBirdTokenizer BioGptTokenizer BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer
    CTRLTokenizer CamembertTokenizer CanineTokenizer ClvpTokenizer CpmAntTokenizer CpmTokenizer
    DPRQuestionEncoderTokenizer DebertaTokenizer DebertaV2Tokenizer DiaTokenizer EsmTokenizer EsmcTokenizer
    FNetTokenizer FSMTTokenizer FlaubertTokenizer FunnelTokenizer GPTNeoXJapaneseTokenizer HerbertTokenizer
    LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer LukeTokenizer MBart50Tokenizer
    MBartTokenizer MPNetTokenizer MarkupLMTokenizer MgpstrTokenizer MyT5Tokenizer NllbTokenizer NougatTokenizer
    OpenAIGPTTokenizer PLBartTokenizer PegasusTokenizer PerceiverTokenizer PhobertTokenizer ProphetNetTokenizer
    RagTokenizer ReformerTokenizer RemBertTokenizer RoCBertTokenizer RoFormerTokenizer RobertaTokenizer
    SeamlessM4TTokenizer Siglip2Tokenizer SplinterTokenizer T5Tokenizer TapasTokenizer UdopTokenizer
    VideoPrismTokenizer VitsTokenizer Wav2Vec2CTCTokenizer Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer XGLMTokenizer
    XLMRobertaTokenizer XLMTokenizer XLNetTokenizer"""
REFUSED = frozenset(_REFUSED.split())
"""Classes that build tokenizers in ways not implemented here."""

_END = "<|endoftext|>"
_OF_LLAMA: dict[str, str | None] = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_DEFAULTS: dict[str, dict[str, str | None]] = {
    "GPT2Tokenizer": {"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": None},
    "GPTNeoXTokenizer": {"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": "<|padding|>"},
    "Qwen2Tokenizer": {"unk_token": _END, "bos_token": None, "eos_token": _END, "pad_token": _END},
    "Qwen3_5Tokenizer": {"unk_token": _END, "bos_token": None, "eos_token": _END, "pad_token": _END},
    "LlamaTokenizer": _OF_LLAMA,
    "CodeLlamaTokenizer": {
        **_OF_LLAMA,
        **{f"{role}_token": f"▁<{role[:3].upper()}>" for role in ("prefix", "middle", "suffix")},
        "eot_token": "▁<EOT>",
    },
    _GEMMA: {role: f"<{role.removesuffix('_token')}>" for role in
             ("unk_token", "bos_token", "eos_token", "pad_token", "mask_token")},
    "CohereTokenizer": {
        "unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "pad_token": "<PAD>",
        "cls_token": "<CLS>", "sep_token": "<SEP>", "mask_token": "<MASK_TOKEN>",
    },
}  # fmt: skip
"""Class -> role -> default token (or None) for roles that a folder does not mention."""

_MISTRAL = ("mistral", "mistral3", "voxtral", "ministral", "pixtral", None)
_BEFORE_5 = re.compile(r"[0-4](\.|$)|5(\.0)*\.?(dev|a|b|rc)")
_MANY_TOKENS = 100_000  # larger vocabularies of Mistral get the corrected word pattern
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FIXED = "fix_mistral_regex"
"""Config key by which a Mistral folder requests the corrected word pattern."""


class ClassRefused(ValueError):
    """Raised if the tokenizer class of a folder changes token ids in a way that is not implemented here."""


def class_in(config: Mapping[str, Any], model: Mapping[str, Any], tokenizer_json: str) -> str:
    """Name of the tokenizer class of a folder; ``AS_FILED`` for every class that uses ``tokenizer.json`` unchanged.
    config, model: content of ``tokenizer_config.json`` and ``config.json``; either may be empty. tokenizer_json:
    content of ``tokenizer.json``."""
    named = str(config.get("tokenizer_class") or model.get("tokenizer_class") or "").removesuffix("Fast")
    kind = str(model.get("model_type") or "") if not config.get("auto_map") else ""
    registered = REGISTERED.get(kind, "")
    if named in _LLAMA and '"ByteLevel"' in tokenizer_json and kind not in MISNAMED:
        name = AS_FILED  # Llama 3 names the class of Llama 2
    elif not named or registered == AS_FILED or (registered and kind in MISNAMED):
        name = registered
    else:
        name = named
    return name if name in _DEFAULTS or name in REFUSED else AS_FILED


def resolve_class_config(
    config: Mapping[str, Any], model: Mapping[str, Any], listed: Mapping[str, Any], tokenizer_json: str
) -> dict[str, Any]:
    """Copy of ``tokenizer_config.json`` with the class and default special tokens that follow from the model's type.
    config, model, listed: content of ``tokenizer_config.json``, ``config.json`` and ``special_tokens_map.json``.
    tokenizer_json: content of ``tokenizer.json``."""
    kind, resolved = class_in(config, model, tokenizer_json), dict(config)
    if kind != class_in(config, {}, tokenizer_json):
        resolved["tokenizer_class"] = kind
    resolved |= {
        role: token for role, token in _DEFAULTS.get(kind, {}).items() if role not in config and role not in listed
    }
    if FIXED in config:
        old = _BEFORE_5.match(str(model.get("transformers_version") or "4"))
        resolved[FIXED] = bool(config[FIXED] and model and model.get("model_type") in _MISTRAL and old)
    return resolved


def apply_class(tokenizer_json: str, config: Mapping[str, Any]) -> str:
    """``tokenizer.json`` with the changes of the class that ``config`` names; may be unchanged. Raises ClassRefused for
    a class whose changes are not implemented here."""
    kind = class_in(config, {}, tokenizer_json)
    if kind in REFUSED:
        raise ClassRefused(
            f"transformers reads it as {kind}, which makes ids of its own that are not known here: where the file is "
            f'to count as it stands, let tokenizer_config.json name "tokenizer_class": "{AS_FILED}"'
        )
    raw = json.loads(tokenizer_json) if kind != AS_FILED or config.get(FIXED) is True else {}
    if not raw or raw["model"].get("type", "BPE") != "BPE":
        return tokenizer_json
    if kind in _WORDS:
        _as_bytes(raw, kind, config)
    elif kind == _GEMMA:
        _as_gemma(raw, config)
    elif kind in _LLAMA:
        _as_llama(raw, kind, config)
    listed = config.get("added_tokens_decoder")
    if kind != AS_FILED and isinstance(listed, dict):  # then the file's do not count
        raw["added_tokens"] = [token for token in raw["added_tokens"] if str(token["id"]) in listed]
    if config.get(FIXED) is True and raw["pre_tokenizer"]:
        added = {token["content"] for token in raw["added_tokens"]}
        if len(added.union(raw["model"]["vocab"])) > _MANY_TOKENS:
            _part_as_tekken(raw)
    return json.dumps(raw, ensure_ascii=False)


_BLANK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_BLANKS_BACK = [_BLANK, {"type": "ByteFallback"}, {"type": "Fuse"}]


def _as_llama(raw: dict[str, Any], kind: str, config: Mapping[str, Any]) -> None:
    """Change a tokenizer's JSON in place as the Llama classes do: blanks become ▁, with one before the text."""
    prefix = config.get("add_prefix_space") is not False
    scheme = "never" if not prefix else "always" if config.get("legacy") and kind == "LlamaTokenizer" else "first"
    raw["normalizer"] = None
    raw["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    decoders = [*_BLANKS_BACK, *(strip if prefix or kind != "LlamaTokenizer" else [])]
    raw["decoder"] = {"type": "Sequence", "decoders": decoders}
    raw["model"] |= {**_PLAIN_BPE, "fuse_unk": True, "byte_fallback": True}


def _as_gemma(raw: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Change a tokenizer's JSON in place as the Gemma class does: blanks become ▁, without one before the text."""
    named = config.get("unk_token", "<unk>")
    raw["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    raw["pre_tokenizer"] = {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False,
    }  # fmt: skip
    raw["decoder"] = {"type": "Sequence", "decoders": _BLANKS_BACK}
    unknown = named.get("content") if isinstance(named, dict) else named
    raw["model"] |= {**_PLAIN_BPE, "fuse_unk": True, "byte_fallback": True, "unk_token": unknown}


def _as_bytes(raw: dict[str, Any], kind: str, config: Mapping[str, Any]) -> None:
    """Change a tokenizer's JSON in place to byte-level BPE with the word pattern of the class ``kind``."""
    words = _WORDS[kind]
    prefix, as_gpt2 = bool(config.get("add_prefix_space")), words is None or words is _DIGITS
    step = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": as_gpt2}
    raw["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [words, step]} if words else step
    raw["normalizer"] = None if kind == "GPT2Tokenizer" else {"type": "NFC"}
    raw["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if kind == "GPTNeoXTokenizer":  # its settings replace the file's post-processor
        only = [{"Sequence": {"id": "A", "type_id": 0}}]
        pair = [*only, {"Sequence": {"id": "B", "type_id": 1}}]
        raw["post_processor"] = {"type": "TemplateProcessing", "single": only, "pair": pair, "special_tokens": {}}
    raw["model"] |= _PLAIN_BPE


def _part_as_tekken(raw: dict[str, Any]) -> None:
    step = raw["pre_tokenizer"]
    if step["type"] == "Sequence":
        raw["pre_tokenizer"] = {**step, "pretokenizers": [_split(_TEKKEN), *step["pretokenizers"][1:]]}
        return
    if step["type"] == "Metaspace":
        step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    raw["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [_split(_TEKKEN), step]}
