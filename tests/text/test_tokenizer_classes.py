"""The class that a folder's tokenizer is read with: by the name it gives, the type of its model and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from transformers.models.auto.tokenization_auto import (
    MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS,
    TOKENIZER_MAPPING_NAMES,
)

from lemur_ray.text.tokenizer_classes import AS_FILED, MISNAMED, REGISTERED
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
