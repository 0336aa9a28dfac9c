"""The class that a folder's tokenizer is read with: by the name it gives, the type of its model and its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers.models.auto.tokenization_auto import (
    MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS,
    TOKENIZER_MAPPING_NAMES,
)

from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_classes import AS_FILED, MISNAMED, REFUSED, REGISTERED, resolve_class_config
from lemur_ray.text.tokenizer_folder import load_folder, save_folder
from lemur_ray.weights.hf_config import tokenizer_files
from tests.text import kinds

MAKERS = {"sentence-piece": kinds.mistral_1, "bytes": kinds.llama_3, "digits": kinds.digits}
TEXTS = kinds.texts(60, ["<s>", "<|im_end|>"], seed=9)
CASES = [
    ("sentence-piece", "LlamaTokenizer", ""),
    ("sentence-piece", "LlamaTokenizer", "llama"),
    ("sentence-piece", "LlamaTokenizer", "mistral"),
    ("sentence-piece", "LlamaTokenizerFast", "mixtral"),
    ("sentence-piece", "LlamaTokenizer", "phi3"),
    ("sentence-piece", "LlamaTokenizer", "internlm2"),
    ("sentence-piece", "LlamaTokenizer", "of nobody's"),
    ("sentence-piece", "CodeLlamaTokenizer", "llama"),
    ("sentence-piece", "CodeLlamaTokenizer", "mistral"),
    ("sentence-piece", None, "code_llama"),
    ("bytes", "LlamaTokenizer", "llama"),
    ("bytes", "LlamaTokenizerFast", "qwen2"),
    ("bytes", "PreTrainedTokenizerFast", "qwen2"),
    ("bytes", "Qwen2Tokenizer", "llama"),
    ("bytes", "GPT2Tokenizer", "olmo2"),
    ("bytes", "GPT2TokenizerFast", "gpt2"),
    ("bytes", "GPTNeoXTokenizerFast", "gpt_neox"),
    ("bytes", None, "gpt2"),
    ("bytes", None, "qwen3_5"),
    ("digits", "GPT2Tokenizer", ""),
    ("digits", "GPT2Tokenizer", "gpt_bigcode"),
    ("digits", "GPT2Tokenizer", "starcoder2"),
    ("digits", "Qwen2Tokenizer", "qwen2"),
    ("digits", "Qwen2Tokenizer", "mistral"),
    ("digits", None, "qwen3"),
    ("sentence-piece", None, "llama"),
    ("sentence-piece", "GemmaTokenizer", ""),
    ("sentence-piece", "GemmaTokenizerFast", "gemma2"),
    ("sentence-piece", None, "gemma3_text"),
    ("bytes", "CohereTokenizer", "cohere"),
    ("digits", "CohereTokenizerFast", ""),
    ("bytes", None, "cohere2"),
]


def folder_of(base: Path, maker: str, named: str | None, model_type: str) -> Path:
    files = MAKERS[maker]()
    config = {**files["tokenizer_config.json"], "tokenizer_class": named}
    if named is None:
        del config["tokenizer_class"]
    files["tokenizer_config.json"] = config
    return kinds.write(kinds.of_type(model_type, files) if model_type else files, base)


@pytest.mark.parametrize(("maker", "named", "model_type"), CASES)
def test_ids_are_those_of_transformers_whatever_class_and_type_a_folder_names(
    maker: str, named: str | None, model_type: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "model", maker, named, model_type)
    ours, theirs = load_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours is not None
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert [*ours.special.before, *ours.encode_marked(text), *ours.special.after] == ids, text
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids, clean_up_tokenization_spaces=False), text

    (tmp_path / "corpus").mkdir()
    save_folder(ours, tmp_path / "corpus")
    exported = kinds.write(kinds.of_type("llama", {}), tmp_path / "exported")
    for name, text in tokenizer_files(ours).items():
        (exported / name).write_text(text)
    copies = [load_folder(tmp_path / "corpus"), load_folder(exported)]
    again = transformers.AutoTokenizer.from_pretrained(str(exported))
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert again(text).input_ids == ids, text
        for copy in copies:
            assert copy is not None
            assert copy.encode_marked(text) == ours.encode_marked(text), text


ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@pytest.mark.parametrize(
    ("maker", "named"),
    [
        ("sentence-piece", "LlamaTokenizer"),
        ("sentence-piece", "CodeLlamaTokenizer"),
        ("sentence-piece", "GemmaTokenizer"),
        ("bytes", "GPT2Tokenizer"),
        ("bytes", "GPTNeoXTokenizer"),
        ("bytes", "Qwen2Tokenizer"),
        ("bytes", "CohereTokenizer"),
    ],
)
def test_a_class_has_tokens_for_roles_that_its_folder_does_not_speak_of(maker: str, named: str, tmp_path: Path) -> None:
    files = MAKERS[maker]()
    files["tokenizer_config.json"] = {"tokenizer_class": named, "pad_token": None}
    if named == "CodeLlamaTokenizer":
        files["tokenizer_config.json"]["fill_token"] = None
    folder = kinds.write(files, tmp_path)
    ours, theirs = load_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours is not None
    found = (ours.bos_id, ours.eos_id, ours.pad_id, ours.special.unk, ours.vocab_size)
    assert found == (theirs.bos_token_id, theirs.eos_token_id, None, theirs.unk_token_id, len(theirs))
    spelled = "a".join(token for role in ROLES if (token := getattr(theirs, role)))
    for text in (spelled, *TEXTS[:20]):
        assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids, text


@pytest.mark.parametrize(("maker", "named"), [("digits", "Qwen2Tokenizer"), ("sentence-piece", "LlamaTokenizer")])
@pytest.mark.parametrize("listed", [True, False])
def test_a_class_knows_the_added_tokens_of_the_config_where_there_is_such_a_list(
    maker: str, named: str, listed: bool, tmp_path: Path
) -> None:
    files = MAKERS[maker]()
    raw = files["tokenizer.json"]
    raw["added_tokens"].append(kinds.flags("<more>", 1 + max(token["id"] for token in raw["added_tokens"])))
    if maker == "sentence-piece":
        raw["added_tokens"][-1]["id"] = len(raw["model"]["vocab"])
    config = {**files["tokenizer_config.json"], "tokenizer_class": named}
    if not listed:
        del config["added_tokens_decoder"]
    folder = kinds.write({**files, "tokenizer_config.json": config}, tmp_path)
    ours, theirs = load_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours is not None
    assert ours.vocab_size == len(theirs)
    for text in ("a<more>b", *TEXTS[:20]):
        assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids, text
    assert listed != ("<more>" in ours.names(ours.encode_marked("a<more>b")))


def test_code_llama_needs_no_row_for_the_mark_of_what_is_to_be_filled_in(tmp_path: Path) -> None:
    files = kinds.code_llama()
    files["tokenizer_config.json"] |= {"fill_token": "<FILL_ME>", "prefix_token": f"{kinds.MARK}<PRE>"}
    folder = kinds.write(files, tmp_path)
    ours, theirs = load_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours is not None
    assert ours.vocab_size == len(files["tokenizer.json"]["model"]["vocab"]) == len(theirs) - 1
    for text in (f"{kinds.MARK}<PRE>x{kinds.MARK}<EOT>", *TEXTS[:20]):
        assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids, text


def test_classes_that_build_tokenizers_of_their_own_are_known_or_refused(tmp_path: Path) -> None:
    """Those that are registered for a type of model, and those that these build upon."""
    found = {}
    for path in Path(transformers.__file__).parent.glob("models/*/tokenization_*.py"):
        for body in path.read_text().split("\nclass ")[1:]:
            name, _, bases = body.partition(":")[0].partition("(")
            found[name] = (bases.rstrip(")"), "\n    def __init__(" in body)
    own = {(name or "").removesuffix("Fast") for name in TOKENIZER_MAPPING_NAMES.values()} & set(found)
    theirs = {name for name in own if found[name][1] or found[name][0] in own}
    assert theirs - {*REGISTERED.values(), "CodeLlamaTokenizer"} == REFUSED

    files = {**kinds.unigram(), "config.json": {"model_type": "llama"}}
    files["tokenizer_config.json"] |= {"tokenizer_class": "T5TokenizerFast"}
    with pytest.raises(ValueError, match=r'as T5Tokenizer, .* name "tokenizer_class": "PreTrainedTokenizerFast"$'):
        load_folder(kinds.write(files, tmp_path))


def test_a_folder_of_mistral_may_say_that_its_file_parts_words_wrongly(tmp_path: Path) -> None:
    raw = json.loads(kinds.tekken()["tokenizer.json"].to_str())
    vocab = raw["model"]["vocab"]
    vocab |= {f"\u3042{number}": len(vocab) + number for number in range(100_001)}
    said = {"tokenizer_class": "LlamaTokenizer", "fix_mistral_regex": True, "bos_token": "<s>", "eos_token": "</s>"}
    files = {"tokenizer.json": raw, "tokenizer_config.json": said, "config.json": {"model_type": "mistral"}}
    folder = kinds.write(files, tmp_path / "a")
    ours, theirs = load_folder(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    assert ours is not None
    plain = Tokenizer.from_json(json.dumps(raw))
    texts = ["HelloWorld aB 12345 /path/to//x", *TEXTS]
    for text in texts:
        assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids, text
    assert any(ours.encode_marked(text) != plain.encode_marked(text) for text in texts)


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        ({"model_type": "mistral", "transformers_version": "4.57.1"}, True),
        ({"model_type": "mistral3", "transformers_version": "5.0.0.dev0"}, True),
        ({"transformers_version": "4.2"}, True),
        ({"model_type": "mistral", "transformers_version": "5.0.0"}, False),
        ({"model_type": "llama"}, False),
        ({}, False),
    ],
)
def test_what_a_folder_says_of_its_words_counts_for_old_models_of_mistral(model: Any, counts: bool) -> None:
    assert resolve_class_config({"fix_mistral_regex": True}, model, {}, "{}") == {"fix_mistral_regex": counts}


def test_types_of_models_have_the_classes_that_transformers_registers_for_them() -> None:
    theirs = {
        kind: AS_FILED if name in ("TokenizersBackend", "MistralCommonBackend") else name.removesuffix("Fast")
        for kind, name in TOKENIZER_MAPPING_NAMES.items()
        if name
    }
    known = set(REGISTERED.values())
    assert {kind: name for kind, name in theirs.items() if name in known} == REGISTERED
    assert MISNAMED == MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS


@pytest.mark.parametrize("config", ["{", '["mistral"]', '{"model_type": null}'])
def test_a_config_that_says_nothing_leaves_the_class_that_the_folder_names(config: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "sentence-piece", "LlamaTokenizer", "mistral")
    of_mistral = load_folder(folder)
    (folder / "config.json").write_text(config)
    found = load_folder(folder)
    assert of_mistral is not None
    assert found is not None
    assert "LlamaTokenizer" in found.files["tokenizer_config.json"]
    assert "LlamaTokenizer" not in of_mistral.files["tokenizer_config.json"]
