"""A model with a tokenizer from elsewhere: opened, turned into a run and back, tuned in ChatML; its roles stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import jax
import pytest
import transformers

from lemur_ray.agents.messages import Message
from lemur_ray.config import MeshConfig, ModelConfig, Recipe
from lemur_ray.doctor.devices import Devices
from lemur_ray.instruct.chat_tokens import with_chat_format
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.table import build_table
from lemur_ray.model.llama import init_params
from lemur_ray.model.sharding import make_mesh
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.loading import load_text_engine, stage_weights
from lemur_ray.serve.needs import check_job
from lemur_ray.serve.policy_model import check_policy_model
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.train.initial_state import initial_params
from lemur_ray.train.run.folder import Run, RunFolderError, prepare
from lemur_ray.train.run.needs import check_model, check_tokenizer
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.hf_config import HuggingFaceError, read_config
from lemur_ray.weights.open_model import open_chat_model, open_model
from tests.text import kinds
from tests.weights.whole_models import write_model

SHAPE = ModelConfig(num_layers=1, dim=16, ffn_dim=24, num_heads=2, num_kv_heads=1, head_dim=8, max_seq_len=64)
KIND = "llama-3"


def model(path: Path, *, rows: int = 0) -> Path:
    """A Hugging Face folder with that tokenizer, and ``rows`` rows more than it has tokens."""
    tokenizer = tokenizer_in(kinds.write(kinds.KINDS[KIND](), path / "tokenizer"))
    config = ModelConfig(**{**vars(SHAPE), "vocab_size": tokenizer.vocab_size + rows})
    write_model(init_params(config, 0), config, None, path / "model")
    kinds.write(kinds.KINDS[KIND](), path / "model")
    return path / "model"


def test_rows_without_tokens_are_fine_and_tokens_without_rows_are_an_error(tmp_path: Path) -> None:
    folder = model(tmp_path, rows=7)
    opened = open_chat_model(str(folder))
    assert opened.source.config.vocab_size == opened.tokenizer.vocab_size + 7
    config = json.loads((folder / "tokenizer_config.json").read_text())
    many = {"extra_special_tokens": [f"<{n}>" for n in range(8)]}
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, **many}))
    tokens, rows = opened.tokenizer.vocab_size + 8, opened.source.config.vocab_size
    with pytest.raises(HuggingFaceError, match=f"ids for {tokens} tokens, the model {rows} rows"):
        open_model(str(folder))


def test_a_run_and_what_is_exported_of_it_keep_what_the_folder_said(tmp_path: Path) -> None:
    folder = model(tmp_path)
    theirs = tokenizer_in(folder)
    for source, out, to in ((folder, tmp_path / "run", "run"), (tmp_path / "run", tmp_path / "back", "hf")):
        convert(Convert(model=str(source), out=str(out), to=to), str(out))
    for place in (tmp_path / "run", tmp_path / "back"):
        tokenizer = open_chat_model(str(place)).tokenizer
        assert tokenizer.special == theirs.special
        assert tokenizer.is_same(theirs)
    again = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "back"))
    text = "<|begin_of_text|> a naïve 🦙<|eot_id|>"
    assert again(text).input_ids == [*theirs.special.before, *theirs.encode_marked(text)]
    generation = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert set(generation["eos_token_id"]) == theirs.stop_ids
    assert generation["do_sample"] is True


def test_tuning_in_chatml_grows_the_vocabulary_and_no_other_start_is_taken_for_the_same(tmp_path: Path) -> None:
    folder = model(tmp_path)
    tokenizer = with_chat_format(tokenizer_in(folder), say=lambda line: None)
    talk = Conversation("talks", "1", (Message("user", "a?"), Message("assistant", "the fox")))
    table, manifest = build_table([talk], tokenizer, tmp_path / "shelf", seq_len=64)
    assert manifest["vocab_size"] == tokenizer_in(folder).vocab_size + 2
    assert tokenizer_in(table).special == tokenizer.special
    grown = ModelConfig(**{**vars(SHAPE), "vocab_size": manifest["vocab_size"]})
    run = Run(Recipe(model=grown), str(table), str(tmp_path / "run"), str(folder))
    check_tokenizer(run.corpus, run.init_from)
    prepare(run)
    assert tokenizer_in(tmp_path / "run").special == tokenizer.special
    params = initial_params(str(folder), run.recipe, make_mesh(MeshConfig(), jax.devices()[:1]))
    assert params["embed"].shape[0] == manifest["vocab_size"]
    kinds.write(kinds.qwen(), tmp_path / "other")
    with pytest.raises(RunFolderError, match="another tokenizer"):
        check_tokenizer(str(table), str(tmp_path / "other"))


IDS = {
    "llama-3": {"bos_token_id": 128_000, "eos_token_id": [128_001, 128_009]},
    "qwen": {"bos_token_id": 151_643, "eos_token_id": 151_645},
    "gemma": {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0},
    "llama-2": {"bos_token_id": 1, "eos_token_id": 2},
}
"""Special tokens that ``config.json`` names in published models of a family."""


def foreign(folder: Path, weights: str, tokenizer: str, file: str = "config.json") -> str:
    """A model whose ``file`` names the special tokens of one family, beside a tokenizer of another."""
    own = tokenizer_in(kinds.write(kinds.KINDS[tokenizer](), folder / "tokenizer"))
    config = ModelConfig(**{**vars(SHAPE), "vocab_size": own.vocab_size})
    write_model(init_params(config, 0), config, None, folder / "model")
    copied = {"tokenizer.json", "tokenizer_config.json"}
    kinds.write({n: text for n, text in kinds.KINDS[tokenizer]().items() if n in copied}, folder / "model")
    raw = json.loads((folder / "model" / file).read_text())
    (folder / "model" / file).write_text(json.dumps({**raw, **IDS[weights]}))
    return str(folder / "model")


@pytest.mark.parametrize(
    ("weights", "tokenizer", "why"),
    [
        ("qwen", "llama-3", "151643, 151645 .* none as a special token"),
        ("llama-3", "qwen", "128000, 128001, 128009 .* none as a special token"),
        ("llama-2", "qwen", "1, 2 .* none as a special token"),
        ("gemma", "mistral-1", "1, 2 .* which are end and begin in the tokenizer"),
        ("gemma", "llama-2", "1, 2 .* which are end and begin in the tokenizer"),
    ],
)
def test_a_tokenizer_of_another_family_is_refused(weights: str, tokenizer: str, why: str, tmp_path: Path) -> None:
    expected = rf"its config names {why}.* of another family than the weights, copy theirs"
    with pytest.raises(HuggingFaceError, match=expected):
        open_model(foreign(tmp_path, weights, tokenizer))


def test_the_own_tokenizer_passes_and_ids_of_generation_are_compared_too(tmp_path: Path) -> None:
    open_model(foreign(tmp_path / "own", "llama-2", "llama-2"))
    with pytest.raises(HuggingFaceError, match="of another family than the weights"):
        open_model(foreign(tmp_path / "other", "qwen", "llama-3", "generation_config.json"))


@pytest.mark.parametrize(
    "stage",
    [
        lambda folder, out: convert(Convert(folder, out, "run"), out),
        lambda folder, out: check_model(folder, Recipe(model=read_config(folder))),
        lambda folder, out: check_job(folder, ServeJob(model=folder), Devices(8, 0, 0)),
        lambda folder, out: check_policy_model(folder, "", False),
        lambda folder, out: load_text_engine(folder),
        lambda folder, out: stage_weights(cast("Engine", None), folder),
    ],
    ids=["import", "pretraining and tuning", "serving", "policy checkpoint", "loading", "update of a server"],
)
def test_every_stage_refuses_it_before_anything_is_started(stage: Callable[[str, str], object], tmp_path: Path) -> None:
    folder, out = foreign(tmp_path, "gemma", "mistral-1"), tmp_path / "out"
    with pytest.raises((ValueError, RuntimeError, RunFolderError), match="which are end and begin in the tokenizer"):
        stage(folder, str(out))
    assert not out.exists()
