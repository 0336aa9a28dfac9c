"""Folders with small tokenizers, built as those of published models are: the same steps, special tokens and files.

Vocabularies are learned here from the few sentences below; nothing of the models themselves is in them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = [
    "def area(width, height):\n    return width * height  # in metres\n",
    "The quick brown fox jumps over the lazy dog, twice, and nobody's there to see it.\n\n",
    "for i in range(10):\n\tprint(f'{i:>3}', end=' ')\n",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.",
    "Быстрая коричневая лиса прыгает через ленивую собаку. 1234567890",
    "我能吞下玻璃而不伤身体。今日は良い天気ですね。",
    "What is 12 + 345? It is 357. don't you're I've we'll",
    '{"name": "search", "arguments": {"query": "weather in Paris", "limit": 3}}',
] * 12
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MARK = "▁"
Files = dict[str, Any]


def flags(content: str, number: int | None = None, **more: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **more}
    return {**({} if number is None else {"id": number}), "content": content, **flags}


def _sentence_piece(specials: Sequence[str]) -> dict[str, Any]:
    """A BPE of SentencePiece with its bytes, as JSON without steps before and after the model."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    backend.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    first = ["<unk>", "<s>", "</s>", *BYTES]
    backend.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=900, special_tokens=first, show_progress=False)
    )
    raw: dict[str, Any] = json.loads(backend.to_str())
    raw["pre_tokenizer"], raw["normalizer"] = None, None
    vocab = raw["model"]["vocab"]
    for blanks in range(2, 9):  # as real ones have
        vocab[MARK * blanks] = len(vocab)
        half = blanks // 2
        raw["model"]["merges"].append([MARK * half, MARK * (blanks - half)])
    for token in specials:
        vocab.setdefault(token, len(vocab))
    raw["added_tokens"] = [flags(token, vocab[token]) for token in ("<unk>", "<s>", "</s>", *specials)]
    return raw


_WITH_BOS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}
_FALLBACK = [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]  # fmt: skip
_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "clean_up_tokenization_spaces": False}


def _as_llama(raw: dict[str, Any], *, metaspace: bool) -> dict[str, Any]:
    raw["decoder"] = {"type": "Sequence", "decoders": _FALLBACK}
    raw["post_processor"] = _WITH_BOS
    if metaspace:
        raw["pre_tokenizer"] = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}
    else:
        steps = [{"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]
        raw["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return raw


def llama_2(*, metaspace: bool = False, **config: Any) -> Files:
    raw = _as_llama(_sentence_piece([]), metaspace=metaspace)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "temperature": 0.6}
    said = {"tokenizer_class": "PreTrainedTokenizerFast", **_ROLES, "pad_token": None, **config}
    return {"tokenizer.json": raw, "tokenizer_config.json": said, "generation_config.json": ids}


def code_llama() -> Files:
    infill = [f"{MARK}<PRE>", f"{MARK}<SUF>", f"{MARK}<MID>", f"{MARK}<EOT>"]
    raw = _as_llama(_sentence_piece(infill), metaspace=False)
    config = {
        "tokenizer_class": "CodeLlamaTokenizer",
        **_ROLES,
        "fill_token": None,
        "additional_special_tokens": infill,
    }
    return {"tokenizer.json": raw, "tokenizer_config.json": config}


def mistral_1() -> Files:
    raw = _as_llama(_sentence_piece([]), metaspace=False)
    decoder = {str(i): flags(t) for i, t in enumerate(("<unk>", "<s>", "</s>"))}
    config = {"tokenizer_class": "LlamaTokenizer", "legacy": True, "added_tokens_decoder": decoder, **_ROLES}
    return {"tokenizer.json": raw, "tokenizer_config.json": config}


def _byte_level(specials: Sequence[str], plain: Sequence[str] = (), words: str = WORDS, **model: Any) -> Tokenizer:
    backend = Tokenizer(models.BPE(**model))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in plain])
    return backend


def llama_3() -> Files:
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    backend = _byte_level(specials, ignore_merges=True)
    bos = backend.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", bos)],
    )  # fmt: skip
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    ends = [backend.token_to_id("<|end_of_text|>"), backend.token_to_id("<|eot_id|>")]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": specials[0], "eos_token": "<|eot_id|>",
        "clean_up_tokenization_spaces": True,
    }  # fmt: skip
    generation = {"bos_token_id": bos, "eos_token_id": ends, "do_sample": True}
    return {"tokenizer.json": backend, "tokenizer_config.json": config, "generation_config.json": generation}


def tekken() -> Files:
    backend = _byte_level(["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"])
    bos = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return {
        "tokenizer.json": backend,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **_ROLES},
    }


def qwen() -> Files:
    specials, plain = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<tool_call>", "</tool_call>", "<think>"]
    backend = _byte_level(specials, plain, WORDS.replace("{1,3}", ""))
    backend.normalizer = normalizers.NFC()
    added = {str(backend.token_to_id(token)): flags(token, special=token in specials) for token in (*specials, *plain)}
    config = {
        "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "unk_token": None,
        "pad_token": "<|endoftext|>", "added_tokens_decoder": added, "additional_special_tokens": specials[1:],
        "add_bos_token": False,
    }  # fmt: skip
    ids = [backend.token_to_id("<|im_end|>"), backend.token_to_id("<|endoftext|>")]
    return {
        "tokenizer.json": backend,
        "tokenizer_config.json": config,
        "generation_config.json": {"bos_token_id": ids[1], "eos_token_id": ids, "top_p": 0.8},
    }


def unigram() -> Files:
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always", True)
    trainer = trainers.UnigramTrainer(
        vocab_size=500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.decoder = decoders.Metaspace(MARK, "always", True)
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
        "additional_special_tokens": ["<extra_id_0>"],
    }  # fmt: skip
    backend.add_special_tokens([AddedToken("<extra_id_0>", special=True, normalized=False)])
    return {"tokenizer.json": backend, "tokenizer_config.json": config}


def word_piece() -> Files:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    )
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    roles = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **{f"{role}_token": token for role, token in roles.items()}}
    return {"tokenizer.json": backend, "tokenizer_config.json": config}


def digits() -> Files:
    """Bytes whose file parts words in its own way, digit by digit; its class parts them otherwise."""
    files = qwen()
    steps = json.loads(files["tokenizer.json"].to_str())
    steps["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits", "individual_digits": True})
    return {**files, "tokenizer.json": steps}


def word_level() -> Files:
    """Whole words; no decoder, and no file beside but the one that older folders have."""
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(vocab_size=200, special_tokens=["<unk>", "<eos>"], show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    return {"tokenizer.json": backend, "special_tokens_map.json": {"eos_token": flags("<eos>"), "unk_token": "<unk>"}}


def suffixed() -> Files:
    """Ends of words marked, as the first BPE had them: what a token says depends on whether it is the last."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>", "<|endoftext|>"], end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "unk_token": "<unk>"}
    return {"tokenizer.json": backend, "tokenizer_config.json": config}


def of_type(model_type: str, files: Files) -> Files:
    """The files beside a model of a type."""
    return {**files, "config.json": {"model_type": model_type}}


KINDS: dict[str, Callable[[], Files]] = {
    "llama-2": lambda: of_type("llama", llama_2(tokenizer_class="LlamaTokenizer", legacy=False)),
    "llama-2, as its file says": lambda: of_type("llama", llama_2()),
    "llama-2, metaspace": lambda: of_type("llama", llama_2(metaspace=True)),
    "code-llama": lambda: of_type("llama", code_llama()),
    "mistral-1": lambda: of_type("mistral", mistral_1()),
    "mistral, tekken": lambda: of_type("mistral", tekken()),
    "llama-3": lambda: of_type("llama", llama_3()),
    "qwen": lambda: of_type("qwen2", qwen()),
    "unigram": lambda: of_type("t5", unigram()),
    "word-piece": lambda: of_type("bert", word_piece()),
    "word-level": word_level,
    "suffixes": lambda: of_type("openai-gpt", suffixed()),
}
BYTE_LEVEL = ("mistral, tekken", "llama-3", "qwen")
SENTENCE_PIECE = ("llama-2", "llama-2, as its file says", "llama-2, metaspace", "code-llama", "mistral-1")


def write(files: Files, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name == "config.json" and (folder / name).exists():
            continue  # that of a whole model
        text = content.to_str() if isinstance(content, Tokenizer) else json.dumps(content, ensure_ascii=False)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


_PIECES = (
    *SENTENCES[:8], " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "a", "The", " the", " fox", "naïve", "e\u0301", "ﬁ",
    "玻璃", "日本", "🦙", "👩‍👩‍👧", "🇫🇷", "\u0301", "\u200b", "\u00a0", "\u3000", "ß", "ǅ", "½",
    "\x00", "\x07", "\x1b[0m", "\x85",
    "▁", "▁a", "<0x0A>", "Ġ", "##a", "</w>", "x = 1", "    return", "(", ")", "...", "'s", " .", " ,", "don't", "12345",
    "٣", "\ufeff", "\ue000", "ᚠ", "አ", "�",
)  # fmt: skip


def texts(count: int, specials: Iterable[str] = (), seed: int = 0) -> list[str]:
    """Texts that hold what goes wrong: blanks at every place, letters of all kinds, control characters, spellings of
    special tokens; and random characters."""
    rng = random.Random(seed)
    special = [*specials]
    out = ["", " ", "  ", "\n", " a", "a ", "  a  b  ", MARK, f"{MARK}a", *special]
    while len(out) < count:
        parts = []
        for _ in range(rng.randint(1, 9)):
            kind = rng.random()
            if special and kind < 0.2:
                parts.append(rng.choice(special))
            elif kind < 0.8:
                parts.append(rng.choice(_PIECES))
            else:
                parts.append("".join(_character(rng) for _ in range(rng.randint(1, 6))))
        out.append("".join(parts)[:400])
    return out[:count]


def _character(rng: random.Random) -> str:
    while (
        0xD800 <= (code := rng.choice((rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x110000)))) < 0xE000
    ):
        pass
    return chr(code)
