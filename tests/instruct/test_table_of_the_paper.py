"""The instruction table of Table 1 by one command, its files by their names in the catalogue, and the real encoder."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.near_duplicates import encoder
from lemur_ray.instruct.pipeline import build_sets
from lemur_ray.instruct.readers.public_sets import read_set
from lemur_ray.instruct.table_1 import table_1_files
from lemur_ray.outside_data.source import FetchError
from lemur_ray.text.tokenizer import Tokenizer
from tests.source_tree import ROOT


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def put_sets(bench: Path, data: Path) -> None:
    """The bundled samples of the four sets, in the files that the catalogue declares."""
    (folder := data / "instruct").mkdir(parents=True)
    shutil.copy(bench / "oasst_trees_en.jsonl.gz", folder / "2023-04-12_oasst_ready.trees.jsonl.gz")
    rows = records(bench / "openorca_schema_from_gsm8k_train.jsonl.gz")
    pq.write_table(pa.Table.from_pylist(rows), folder / "1M-GPT4-Augmented.parquet")
    talks = records(bench / "sharegpt_schema_fastchat_dummy.jsonl.gz")
    (folder / "ShareGPT_V3_unfiltered_cleaned_split.json").write_text(json.dumps(talks, indent=1))
    evol = records(bench / "evol_schema_from_mbpp.jsonl.gz")
    (folder / "evol-codealpaca-v1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in evol))
    (folder / "EvolInstruct-Code-80k.json").write_text(json.dumps(evol))


def test_one_command_makes_the_table_and_prints_the_counts_beside_the_papers(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    import instruct_table

    put_sets(data_dir / "bench/instruct", tmp_path / "data")
    options = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "table"), "--workers", "0", "--fetch", "False"]
    options += ["--encoder", "hashing:512", "--language="]
    assert instruct_table.main(options) == 0
    output = capsys.readouterr().out
    result = json.loads(output.splitlines()[-1])
    rows = {name: one["rows"] for name, one in result["statistics"].items()}
    assert rows == {"oasst1": 218, "openorca": 200, "sharegpt": 52, "evol": 187}
    assert "34,546" in output
    assert "evol-codealpaca-v1.jsonl, instruct/EvolInstruct-Code-80k.json" in output
    assert (Path(result["table"]) / "manifest.json").is_file()


def test_a_set_that_is_not_there_is_named_with_its_command_and_given_files_replace_sets(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"oasst1: .* lacks instruct/2023.*python jobs/fetch_data.py oasst1"):
        table_1_files(SetsConfig(), tmp_path, (), False, print)
    with pytest.raises(FetchError, match=r"terms to accept first: sharegpt: .*--accept sharegpt"):
        table_1_files(SetsConfig(oasst1=("x",), openorca=("x",)), tmp_path, (), True, print)
    mine = SetsConfig(oasst1=("a",), openorca=("b",), sharegpt=("c",), evol=("d",))
    assert table_1_files(mine, tmp_path, (), True, print) == {}


def test_every_published_form_of_a_set_gives_the_same_conversations(data_dir: Path, tmp_path: Path) -> None:
    config = SetsConfig(language="")
    talks = records(data_dir / "bench/instruct/sharegpt_schema_fastchat_dummy.jsonl.gz")
    lines = "".join(json.dumps(talk) + "\n" for talk in talks).encode()
    forms: dict[str, bytes] = {
        "lines.jsonl": lines,
        "lines.jsonl.gz": gzip.compress(lines),
        "lines.jsonl.zst": bytes(pa.Codec("zstd").compress(lines, asbytes=True)),
        "list.json": json.dumps(talks).encode(),
        "pretty.json": json.dumps(talks, indent=2).encode(),
        "list.json.gz": gzip.compress(json.dumps(talks).encode()),
    }
    expected: list[Any] | None = None
    for name, data in forms.items():
        (path := tmp_path / name).write_bytes(data)
        read = [getattr(one, "messages", one) for one in read_set("sharegpt", path, config)]
        expected = expected or read
        assert read == expected, name
    assert expected is not None
    assert len(expected) == 250


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a sentence-transformers model with two random layers."""
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    import torch
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer as FastTokenizer
    from tokenizers import models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(chr(code) for code in range(33, 127))]
    fast = FastTokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder / "bert"
    )
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder / "bert")
    layers = [modules.Transformer(str(folder / "bert")), modules.Pooling(32)]
    model = SentenceTransformer(modules=layers, device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


@pytest.mark.slow
def test_the_near_duplicate_filter_runs_with_a_model_of_sentence_transformers(
    small_model: Path, tmp_path: Path, write_evol: Callable[..., Path]
) -> None:
    spec = f"sentence-transformers:{small_model}"
    plain, prompted = encoder(spec)(["write a loop"]), encoder(spec, "Represent: ")(["write a loop"])
    assert plain.shape == (1, 32)
    assert (plain != prompted).any(), "the prompt reaches the model"
    path = write_evol(tmp_path / "e.jsonl", "sort the list", "sort the list", "~~~~ 12345 ####")
    config = SetsConfig(evol=(str(path),), encoder=spec, near_duplicate=0.99)
    _, manifest = build_sets(config, Tokenizer.bytes_only(), tmp_path, seq_len=256, workers=0, say=lambda line: None)
    stages = {stage["stage"]: stage for stage in manifest["counts"]["evol"]["stages"]}
    assert stages["near_duplicate"]["dropped"]["like_an_earlier_row"] >= 1
    assert stages["near_duplicate"]["out"] >= 1


@pytest.fixture
def write_evol() -> Callable[..., Path]:
    def write(path: Path, *instructions: str) -> Path:
        path.write_text("".join(json.dumps({"instruction": one, "output": "x"}) + "\n" for one in instructions))
        return path

    return write
