"""What a run needs before it begins: everything that lacks in one list, and nothing refused that would have fitted."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.cluster import connection
from lemur_ray.config import SourceConfig
from lemur_ray.corpus.manifest import VERSION, row_folder, write_manifest
from lemur_ray.corpus.rows import RowWriter
from lemur_ray.doctor.devices import Devices
from lemur_ray.recipes import NAMES, get_recipe
from lemur_ray.text.bpe_training import NUMBERED, SMALLEST, train_bpe
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.run import needs, sinks
from lemur_ray.weights.hf_config import config_files
from tests.conftest import ROOT
from tests.train.run.test_device_needs import LAPTOP, of_mesh

OWN = '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there"}]}'


def corpus(folder: Path, *sources: str, seq_len: int = 1024) -> str:
    folder.mkdir()
    listed = [{"name": name, "kind": "code", "rows": 10**8, "tokens": 10**11} for name in sources]
    manifest = {"version": VERSION, "tokenizer": "", "vocab_size": 32_000, "seq_len": seq_len, "sources": listed}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


def test_the_papers_run_on_a_laptop_is_refused_with_everything_that_lacks(tmp_path: Path) -> None:
    recipe = get_recipe("lemur-70b")
    with pytest.raises(needs.TrainingPreflightError) as refused:
        needs.check_run(
            recipe, LAPTOP, str(tmp_path / "out"), [lambda: needs.check_corpus(recipe, str(tmp_path / "none"), False)]
        )
    said = str(refused.value).splitlines()
    assert len(said) == 4
    assert "java, notebook, php" in said[1]
    assert "refinedweb" in said[1]
    assert "jobs/build_corpus.py" in said[1]
    assert "it takes 256 TPU chips: 64 hosts" in said[2]
    assert "0 TPU chips" in said[2]
    assert said[3] == "recipes whose devices and memory are here: nano, nano-chat, nano-mixture"
    assert not (tmp_path / "out").exists(), "what was made to see whether it can be is gone"


def test_all_sources_that_a_corpus_lacks_are_named_at_once(tmp_path: Path) -> None:
    recipe = get_recipe("lemur-70b")
    made = corpus(tmp_path / "corpus", "python", "sql", seq_len=4096)
    with pytest.raises(Exception, match=r"sources 'java', .*'arxiv'.* are not in the corpus: it has python, sql"):
        needs.check_corpus(recipe, made, True)


def test_rows_that_are_gone_are_said_before_anything_is_begun_and_not_by_a_traceback(tmp_path: Path) -> None:
    nano, made = get_recipe("nano"), tmp_path / "corpus"
    with RowWriter(row_folder(made, "code"), nano.data.seq_len, vocab_size=300) as writer:
        writer.write([np.arange(9)])
    listed = [{"name": "code", "kind": "code", "rows": 1, "tokens": nano.data.seq_len}]
    write_manifest(made, {"tokenizer": "", "vocab_size": 300, "seq_len": nano.data.seq_len, "sources": listed})
    look = partial(needs.check_corpus, nano, str(made), True)
    needs.check_run(nano, LAPTOP, str(tmp_path / "out"), [look])
    (row_folder(made, "code") / "00000.tokens").unlink()
    with pytest.raises(
        needs.TrainingPreflightError, match=r"rows/code/00000\.tokens is missing: build the corpus again"
    ):
        needs.check_run(nano, LAPTOP, str(tmp_path / "out"), [look])
    with pytest.raises(needs.RUN_ERRORS, match="is missing"):
        look()


def test_rows_with_more_documents_than_attention_on_gpu_takes_are_refused_with_the_flag(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "corpus", "python", seq_len=16)
    with RowWriter(row_folder(folder, "python"), 16, vocab_size=300) as writer:
        writer.write([np.array([1])] * 5)
    small = of_mesh("nano", use_gpu=True)
    data = dataclasses.replace(small.data, seq_len=16, sources=(SourceConfig("python", "code", 1.0),), max_documents=5)
    recipe = dataclasses.replace(small, data=data)
    with pytest.raises(ValueError, match=r"rows of source python have up to 6.* give --data\.max-documents 6"):
        needs.check_rows(recipe, folder)
    needs.check_rows(dataclasses.replace(recipe, data=dataclasses.replace(data, max_documents=6)), folder)
    needs.check_rows(dataclasses.replace(recipe, data=dataclasses.replace(data, mask_documents=False)), folder)
    needs.check_rows(dataclasses.replace(recipe, mesh=of_mesh("nano").mesh), folder)


def test_the_small_recipes_begin_on_a_laptop_and_the_large_ones_where_their_slices_are(tmp_path: Path) -> None:
    for name in ("nano", "nano-chat", "nano-mixture"):
        needs.check_run(get_recipe(name), LAPTOP, str(tmp_path / name), [])
    pod = Devices(cpus=10_000, tpus=1024, gpus=8, in_cluster=True)
    for name in NAMES:
        needs.check_devices(get_recipe(name), pod)
        needs.check_memory(get_recipe(name), pod)


def test_a_finished_run_needs_no_devices(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    needs.check_run(get_recipe("lemur-70b"), LAPTOP, str(tmp_path), [])


def test_a_tuning_names_model_and_files_together(tmp_path: Path, lemur_home: Path) -> None:
    with pytest.raises(needs.TrainingPreflightError) as refused:
        needs.check_tuning_run(get_recipe("nano-chat"), LAPTOP, str(tmp_path / "out"), "gone", "", ["a.jsonl"])
    said = str(refused.value)
    assert "model 'gone': neither a folder nor a run" in said
    assert f"files: {lemur_home}/a.jsonl: not there" in said


@pytest.fixture
def refusal(
    lemur_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a job, by name, says where it refuses its arguments: on a laptop, and without Ray."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setattr(connection, "connect", lambda **options: pytest.fail("Ray was started"))
    monkeypatch.setattr(connection, "available_devices", lambda: LAPTOP)

    def said(job: str, *argv: str) -> str:
        assert importlib.import_module(job).main([*argv]) == 1
        return capsys.readouterr().err

    return said


@pytest.fixture
def tune(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What jobs/instruct.py says; "begun" where it would start Ray."""

    def begun(**options: object) -> None:
        raise ValueError("begun")

    monkeypatch.setattr(connection, "connect", begun)
    return partial(refusal, "instruct")


def nano_folder(folder: Path, **files: str) -> Path:
    """A model of the recipe nano-chat whose weights are not there, and a tokenizer of bytes with other files beside."""
    config = get_recipe("nano-chat").model
    for name, text in config_files(config, Tokenizer.bytes_only(), "float32").items():
        (folder / name).write_text(text)
    (folder / "tokenizer.json").write_text(Tokenizer.bytes_only().to_json())
    header = json.dumps({}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_tuning_that_would_come_to_nothing_says_all_that_lacks_and_starts_nothing(
    tune: Callable[..., str], lemur_home: Path
) -> None:
    began = time.process_time()
    said = tune("lemur-70b-chat", "--init-from", "gone", "--oasst1", "a.gz", "--conversations", "b.jsonl")
    assert time.process_time() - began < 5
    assert said.count("model 'gone': neither a folder nor a run") == 1
    assert f"files: {lemur_home}/b.jsonl, {lemur_home}/a.gz: not there" in said
    assert "--conversations is no part of Table 1: leave it out" in said
    assert "TPU chips" in said
    assert "recipes whose devices and memory are here: nano" in said
    assert os.listdir(lemur_home / "runs") == []


def test_a_tuning_whose_model_does_not_fit_says_what_would_do(tune: Callable[..., str]) -> None:
    mesh = ("--mesh.no-use-tpu", "--mesh.topology=", "--mesh.accelerator-type=", "--mesh.num-workers=1")
    said = tune("lemur-70b-chat", "--init-from", "random:llama2-70b", *mesh, "--mesh.fsdp=-1", "--mesh.tp=1")
    assert "memory: parameters, gradients and moments take" in said
    assert "take a smaller model, adapters" in said


def test_a_tuning_looks_at_tokenizer_and_template_of_its_model(tune: Callable[..., str], tmp_path: Path) -> None:
    folder = nano_folder(tmp_path)
    start = ("nano-chat", "--init-from", str(folder))
    assert "--init-from: no tensor 'model.embed_tokens.weight'" in tune(*start)
    assert f"--chat-template {tmp_path}/none.jinja: " in tune(*start, "--chat-template", f"{tmp_path}/none.jinja")
    (folder / "chat_template.jinja").write_text("{% for %}")
    said = tune(*start)
    assert "the chat template is no Jinja template" in said
    assert "a file with another one, or chatml" in said
    (folder / "tokenizer.json").unlink()
    assert tune(*start).count("no tokenizer.json in") == 1
    assert f"--init-from: no tokenizer.json in {folder}" in tune("nano-chat", "--init-from", f"random:nano@{folder}")


def test_packages_of_filters_are_asked_for_where_the_table_is_made_here(
    tune: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "talks.json").write_text("[]")
    start = ("nano-chat", "--init-from", "random:nano", "--sharegpt", f"{tmp_path}/talks.json")
    said = tune(*start)
    assert f"near-duplicates are found with sentence-transformers: pip install '{ROOT}[instruct]'" in said
    assert "the language filter needs langdetect" in said
    assert tune(*start, "--encoder", "hashing:64", "--language=") == "instruct: begun\n"
    monkeypatch.setattr(connection, "available_devices", lambda: dataclasses.replace(LAPTOP, in_cluster=True))
    assert tune(*start) == "instruct: begun\n"


def test_a_model_without_a_template_is_tuned_on_our_own(tune: Callable[..., str]) -> None:
    assert tune("nano-chat", "--init-from", "random:nano") == "instruct: begun\n"


def test_sources_and_row_lengths_of_the_embedded_corpus_are_known_before_it_is_built(tmp_path: Path) -> None:
    nano = get_recipe("nano")
    needs.check_corpus(nano, str(tmp_path), False)
    data = dataclasses.replace(nano.data, sources=(SourceConfig("sql", "code"), SourceConfig("fortran", "code")))
    with pytest.raises(ValueError, match="sources: fortran are not in the embedded corpus"):
        needs.check_corpus(dataclasses.replace(nano, data=data), str(tmp_path), False)
    longer = dataclasses.replace(nano, data=dataclasses.replace(nano.data, seq_len=2048))
    with pytest.raises(ValueError, match=r"2048 tokens a row.*1024.*--seq-len 2048"):
        needs.check_corpus(longer, str(tmp_path), False)


def test_the_job_says_it_without_ray_and_leaves_nothing(refusal: Callable[..., str], lemur_home: Path) -> None:
    said = refusal("pretrain", "lemur-70b")
    assert "lemur-70b is not begun" in said
    assert "256 TPU chips" in said
    assert not list(lemur_home.glob("**/*.json"))
    assert os.listdir(lemur_home / "runs") == []


@pytest.mark.parametrize("job", ["pretrain", "instruct", "mixture_study"])
def test_every_job_that_trains_refuses_s3_at_once_and_makes_no_folder_of_that_name(
    job: str, refusal: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal(job, "--out", "s3://bucket/run")
    assert "--out s3://bucket/run: " in said
    assert "choose a folder" in said
    assert not list(tmp_path.rglob("s3:*"))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--mesh.tp", "3"), "tp 3"),
        (("--corpus", "nowhere"), "nowhere"),
        (("--init-from", "gone"), "model 'gone': neither a folder nor a run"),
        (("--init-from", "{nano}"), "--init-from: no tensor 'model.embed_tokens.weight'"),
        (("--init-from", "{nano}", "--corpus", "{corpus}"), "was trained with another tokenizer than corpus"),
        (("--watch.sinks", "wandb"), f"pip install '{ROOT}[wandb]'"),
        (("--out", "{file}/run"), "is not writable"),
    ],
    ids=["mesh", "corpus", "init-from", "weights", "tokenizer", "sinks", "out"],
)
def test_every_input_of_a_pretraining_is_checked_before_anything_is_started(
    refusal: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], says: str
) -> None:
    monkeypatch.setitem(sinks.PACKAGES, "wandb", "no_such_package")
    (tmp_path / "file").write_text("")
    (tmp_path / "nano").mkdir()
    places = {"nano": nano_folder(tmp_path / "nano"), "corpus": corpus(tmp_path / "c"), "file": tmp_path / "file"}
    Tokenizer(train_bpe(["ab ab ab"] * 9, SMALLEST + 2, NUMBERED)).save(tmp_path / "c" / "tokenizer.json")
    words = [word.format(**places) for word in argv]
    for preflight in ([], ["--preflight"]):
        assert says in refusal("pretrain", "nano", *words, *preflight)


def test_a_preflight_that_finds_nothing_ends_with_0_and_asks_for_no_device(
    refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "available_devices", lambda: pytest.fail("devices were asked for"))
    assert importlib.import_module("pretrain").main(["nano", "--preflight"]) == 0


@pytest.mark.parametrize(
    ("rows", "argv", "says"),
    [
        (['{"messages": [{"role": "user", "content": "Hi"}]}'], (), "no_assistant_turn"),
        (["{}"], (), "not a conversation"),
        ([""], (), "no conversation in them"),
        ([OWN], ("--data.seq-len", "4"), 'no conversation left for {home}/instruct/nano-chat: {{"chats": {{"read": 1'),
        ([OWN], ("--chat-template", "{refusing}"), '"refused_by_the_chat_template": 1'),
        ([OWN], ("--model.vocab-size", "250"), "tokens, the model of recipe 'nano-chat' only 250 rows"),
    ],
    ids=["rules", "form", "empty", "length", "template", "vocabulary"],
)
def test_a_preflight_refuses_what_tuning_would_with_the_same_sentence(
    refusal: Callable[..., str], lemur_home: Path, tmp_path: Path, rows: list[str], argv: tuple[str, ...], says: str
) -> None:
    (tmp_path / "chats.jsonl").write_text("\n".join(rows))
    (tmp_path / "refusing.jinja").write_text("{% if messages|length > 1 %}{{ raise_exception('no') }}{% endif %}")
    start = ["nano-chat", "--init-from", "random:nano", "--conversations", f"{tmp_path}/chats.jsonl"]
    words = [*start, *(word.format(refusing=tmp_path / "refusing.jinja") for word in argv)]
    said = refusal("instruct", *words, "--preflight")
    assert says.format(home=lemur_home) in said
    assert refusal("instruct", *words).partition("\nrecipes whose devices")[0].strip() == said.strip()


def test_a_preflight_asks_whether_epochs_over_a_given_table_are_whole_batches(
    refusal: Callable[..., str], tmp_path: Path
) -> None:
    place = Path(corpus(tmp_path / "table", "chat"))
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["sources"][0] |= {"rows": 7, "documents": 200}
    (place / "manifest.json").write_text(json.dumps(manifest))
    words = ["nano-chat", "--init-from", "random:nano", "--corpus", str(place), "--tuning.epochs", "3"]
    for preflight in ([], ["--preflight"]):
        assert "passes over 7 rows are no whole number of batches" in refusal("instruct", *words, *preflight)
