"""What a folder says of its special tokens, in the forms of today and of before; what is damaged is named."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import transformers

from lemur_ray.instruct.chat_tokens import with_chat_tokens
from lemur_ray.text.special_tokens import SPECIALS
from lemur_ray.text.token_pieces import DecoderRefused
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_folder, load_path, read_files, save_folder, tokenizer_in
from tests.text import kinds


def folder(files: kinds.Files, path: Path, **config: Any) -> Path:
    if config:
        files = {**files, "tokenizer_config.json": {**files.get("tokenizer_config.json", {}), **config}}
    return kinds.write(files, path)


def roles(tokenizer: Tokenizer) -> tuple[int | None, ...]:
    return tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id


def test_nothing_is_guessed_and_nothing_added(tmp_path: Path) -> None:
    files = kinds.llama_3()
    alone = Tokenizer.from_json(files["tokenizer.json"].to_str())
    bos = files["tokenizer.json"].token_to_id("<|begin_of_text|>")
    assert roles(alone) == (bos, None, None), "its post-processor names the first, nothing the others"
    assert alone.stop_ids == frozenset()
    assert (alone.im_start_id, alone.im_end_id) == (None, None)
    assert alone.vocab_size == files["tokenizer.json"].get_vocab_size()
    assert not set(alone.to_json().split('"')) & {"<|im_start|>", "<|im_end|>", "<pad>"}


def test_all_tokens_that_end_a_text_are_known(tmp_path: Path) -> None:
    llama = tokenizer_in(folder(kinds.llama_3(), tmp_path / "a"))
    assert llama.stop_ids == set(json.loads(llama.files["generation_config.json"])["eos_token_id"])
    assert llama.eos_id in llama.stop_ids
    qwen = tokenizer_in(folder(kinds.qwen(), tmp_path / "b"))
    assert qwen.bos_id is None, "the folder says that there is none, whatever generation_config.json holds"
    assert qwen.special.before == ()
    assert qwen.im_end_id in qwen.stop_ids
    assert len(qwen.stop_ids) == 2


def test_ids_of_a_config_stand_in_where_nothing_else_names_them(tmp_path: Path) -> None:
    files = {**kinds.llama_3(), "config.json": {"bos_token_id": 3, "eos_token_id": [4, 5], "hidden_size": 8}}
    del files["tokenizer_config.json"], files["generation_config.json"]
    tokenizer = tokenizer_in(folder(files, tmp_path))
    assert roles(tokenizer) == (3, 4, None)
    assert tokenizer.stop_ids == {4, 5}


@pytest.mark.parametrize("legacy", [False, True])
def test_tokens_that_only_the_small_files_name_are_read_as_transformers_reads_them(
    legacy: bool, tmp_path: Path
) -> None:
    files = kinds.llama_2()
    end = files["tokenizer.json"]["model"]["vocab"]
    pad, tool = len(end), len(end) + 1
    if legacy:
        files["added_tokens.json"] = {"[PAD]": pad, "<tool>": tool}
        files["special_tokens_map.json"] = {
            **{role: kinds.flags(token) for role, token in (("bos_token", "<s>"), ("eos_token", "</s>"))},
            "unk_token": "<unk>",
            "pad_token": "[PAD]",
        }
        files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    else:
        added = {str(pad): kinds.flags("[PAD]"), str(tool): kinds.flags("<tool>", special=False)}
        files["tokenizer_config.json"] |= {"added_tokens_decoder": added, "pad_token": "[PAD]"}
    path = folder(files, tmp_path)
    ours, theirs = tokenizer_in(path), transformers.AutoTokenizer.from_pretrained(str(path))
    assert (ours.vocab_size, ours.pad_id) == (len(theirs), theirs.pad_token_id) == (tool + 1, pad)
    assert roles(ours)[:2] == (1, 2)
    for text in ("a<tool>b", "x [PAD] y</s><tool> z", "<s>[PAD]"):
        assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids
        assert not set(ours.encode(text)) & ours.special_ids
    assert tool not in ours.special_ids
    assert pad in ours.special_ids


def test_missing_tokens_get_the_ids_that_transformers_gives_them(tmp_path: Path) -> None:
    more = {"pad_token": "[Z]", "sep_token": "[Y]", "image_token": "<image>", "extra_special_tokens": ["[B]", "[A]"]}
    path = folder(kinds.llama_2(), tmp_path, **more)
    ours, theirs = tokenizer_in(path), transformers.AutoTokenizer.from_pretrained(str(path))
    assert ours.vocab_size == len(theirs)
    text = "a[Z]b[Y]<image>[A][B]"
    assert ours.encode_marked(text) == theirs(text, add_special_tokens=False).input_ids
    assert len(set(ours.encode_marked(text)) & ours.special_ids) == 5


def test_an_id_that_the_files_do_not_agree_on_is_named(tmp_path: Path) -> None:
    added = {"5000": kinds.flags("[PAD]")}
    path = folder(kinds.llama_2(), tmp_path, added_tokens_decoder=added)
    with pytest.raises(ValueError, match=r"'\[PAD\]' is id 5000, the vocabulary makes it \d+: copy all files"):
        load_folder(path)


@pytest.mark.parametrize("content", ["{", "[]"])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "special_tokens_map.json"])
def test_a_damaged_small_file_is_named(name: str, content: str, tmp_path: Path) -> None:
    path = folder(kinds.llama_3(), tmp_path)
    (path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} .*copy it anew"):
        load_folder(path)


@pytest.mark.parametrize("listed", [[1], {"x": {"content": "a"}}, {"3": {}}, {"3": "a"}, {"3": {"content": 7}}])
def test_added_tokens_that_are_none_are_named(listed: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer_config.json next to it: added_tokens_decoder .*copy it anew"):
        load_folder(folder(kinds.llama_2(), tmp_path, added_tokens_decoder=listed))


def test_a_value_of_another_form_is_one_line(tmp_path: Path) -> None:
    for number, said in enumerate(({"extra_special_tokens": 7}, {"additional_special_tokens": 1.5})):
        with pytest.raises(ValueError, match=r"tokenizer\.json: a config file next to it .*copy all files"):
            load_folder(folder(kinds.qwen(), tmp_path / str(number), **{"additional_special_tokens": None, **said}))


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_small_file_that_is_no_text_is_named_and_not_the_tokenizer(name: str, tmp_path: Path) -> None:
    path = folder(kinds.llama_2(), tmp_path)
    (path / name).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=f"{name} next to it is not text .*copy it anew"):
        load_folder(path)


def test_a_tokenizer_of_speech_is_refused(tmp_path: Path) -> None:
    files = kinds.word_level()
    raw = json.loads(files["tokenizer.json"].to_str())
    raw["decoder"] = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}
    with pytest.raises(ValueError, match="decoder is CTC") as error:
        load_folder(folder({"tokenizer.json": raw}, tmp_path))
    assert isinstance(error.value.__cause__, DecoderRefused)


@pytest.mark.parametrize("maker", [kinds.qwen, kinds.tekken, kinds.llama_2])
@pytest.mark.parametrize("wanted", [True, False])
def test_texts_begin_and_end_with_what_transformers_puts_there(
    maker: Callable[[], kinds.Files], wanted: bool, tmp_path: Path
) -> None:
    files = maker()
    bos = files["tokenizer_config.json"]["bos_token"] or "<|endoftext|>"
    path = folder(files, tmp_path, bos_token=bos, add_bos_token=wanted, add_eos_token=wanted)
    ours, theirs = tokenizer_in(path), transformers.AutoTokenizer.from_pretrained(str(path))
    assert ours.bos_id == theirs.bos_token_id is not None
    assert [*ours.special.before, *ours.encode("a"), *ours.special.after] == theirs("a").input_ids


def test_folders_in_a_bucket_and_files_by_their_path_are_read_alike(tmp_path: Path) -> None:
    path = folder(kinds.llama_3(), tmp_path / "model")
    there = f"memory://tokenizers/{uuid.uuid4().hex}"
    local = tokenizer_in(path)
    save_folder(local, there)
    assert tokenizer_in(there).special == local.special == load_path(path / "tokenizer.json").special
    assert set(read_files(there)) == {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert load_folder("memory://tokenizers/none") is None
    assert load_folder(tmp_path) is None
    with pytest.raises(FileNotFoundError, match=r"no tokenizer\.json in"):
        tokenizer_in(tmp_path)
    fsspec.filesystem("memory").pipe_file(f"{there}/tokenizer.json", b"\xff{")
    with pytest.raises(ValueError, match=f"{there}/tokenizer.json is not a tokenizer.json"):
        load_folder(there)


def test_our_own_needs_one_file_and_keeps_its_seven_names(tmp_path: Path) -> None:
    ours = Tokenizer.train(["the cat sat on the mat"] * 20, 290)
    save_folder(ours, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    again = tokenizer_in(tmp_path)
    assert again.special == ours.special
    assert roles(again) == (1, 2, 0)
    assert again.stop_ids == {again.eos_id, again.im_end_id}
    assert again.special.before == (again.bos_id,)
    assert len(again.special_ids) == len(SPECIALS)


def test_only_tuning_in_chatml_adds_its_two_tokens_and_says_how_many(tmp_path: Path) -> None:
    llama = tokenizer_in(folder(kinds.llama_2(), tmp_path))
    said: list[str] = []
    grown = with_chat_tokens(llama, said.append)
    assert (grown.im_start_id, grown.im_end_id) == (llama.vocab_size, llama.vocab_size + 1)
    assert len(said) == 1
    assert f"<|im_start|> and <|im_end|> added for ChatML, 2 new of {grown.vocab_size} tokens" in said[0]
    assert roles(grown)[:2] == roles(llama)[:2]
    assert grown.stop_ids == llama.stop_ids | {grown.im_end_id}
    assert llama.grows_to(grown)
    assert not grown.grows_to(llama)
    assert not llama.is_same(grown)
    assert grown.encode("a <|im_end|> b") == llama.encode("a <|im_end|> b")
    for own in (grown, tokenizer_in(folder(kinds.qwen(), tmp_path / "q")), Tokenizer.bytes_only()):
        assert with_chat_tokens(own, said.append) is own
    assert len(said) == 1
    again = Tokenizer.from_files(grown.to_files())
    assert again.special == grown.special
