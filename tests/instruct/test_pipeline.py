"""Files of the public sets to a table: same bytes with any number of workers, every drop counted, nothing hidden."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from lemur_ray.corpus.manifest import CorpusError, row_folder
from lemur_ray.corpus.packing import PackedRow
from lemur_ray.corpus.rows import RowReader
from lemur_ray.instruct import stages
from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.pipeline import build_sets
from lemur_ray.instruct.statistics import TABLE_1
from lemur_ray.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.bytes_only()


@pytest.fixture(scope="session")
def sets(data_dir: Path) -> SetsConfig:
    """The bundled files of all four shapes; without the language filter, which is an extra."""
    folder = data_dir / "bench" / "instruct"
    return SetsConfig(
        oasst1=(str(folder / "oasst_trees_en.jsonl.gz"),),
        openorca=(str(folder / "openorca_schema_from_gsm8k_train.jsonl.gz"),),
        sharegpt=(
            str(folder / "sharegpt_schema_fastchat_dummy.jsonl.gz"),
            str(folder / "sharegpt_real_fixture_axolotl.json.gz"),
        ),
        evol=(str(folder / "evol_schema_from_mbpp.jsonl.gz"),),
        openorca_rows=150,
        language="",
        encoder="hashing:512",
    )


def build(config: SetsConfig, shelf: Path, **options: Any) -> tuple[Path, dict[str, Any]]:
    fields = {"seq_len": 2048, "workers": 0, "say": lambda line: None, **options}
    return build_sets(config, TOKENIZER, shelf, **fields)  # type: ignore[arg-type]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rows_of(folder: Path) -> PackedRow:
    reader = RowReader(row_folder(folder, "chat"))
    return reader.read(np.arange(len(reader)))


def trained_texts(folder: Path) -> list[str]:
    """What each example teaches, sorted: its targets with weight, decoded."""
    rows = rows_of(folder)
    return sorted(
        TOKENIZER.decode(rows.targets[k][(rows.segment_ids[k] == s) & (rows.loss_weights[k] > 0)].tolist(), False)
        for k in range(len(rows.tokens))
        for s in range(1, rows.segment_ids[k].max() + 1)
    )


def evol(path: Path, *pairs: tuple[str, str]) -> SetsConfig:
    path.write_text("".join(json.dumps({"instruction": q, "output": a}) + "\n" for q, a in pairs))
    return SetsConfig(evol=(str(path),), near_duplicate=0)


@pytest.mark.slow
@pytest.mark.timeout(840)
def test_one_worker_four_workers_and_none_give_the_same_bytes(ray_local: str, sets: SetsConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(sets, openorca=(), evol=())
    folders = [build(config, tmp_path / str(n), workers=n, block=b)[0] for n, b in ((0, 4096), (1, 64), (4, 32))]
    tables = [files_of(folder) for folder in folders]
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) >= 6


def test_smaller_tables_and_blocks_on_the_way_give_the_same_bytes(
    sets: SetsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files_of(build(sets, tmp_path / "whole")[0])
    monkeypatch.setattr(stages, "ROWS", 37)
    assert files_of(build(sets, tmp_path / "small", block=50)[0]) == whole


def test_every_row_that_was_read_is_in_the_table_or_counted_under_a_name(sets: SetsConfig, tmp_path: Path) -> None:
    folder, manifest = build(sets, tmp_path)
    talks = pq.read_table(folder / "conversations.parquet")
    for name, one in manifest["counts"].items():
        for before, after in zip(one["stages"], one["stages"][1:], strict=False):
            assert before["out"] == after["in"]
        assert all(s["in"] - s["out"] == sum(s["dropped"].values()) for s in one["stages"])
        assert one["stages"][-1]["out"] == talks.column("dataset").to_pylist().count(name)
        assert one["licence"]
    dropped = {name: {r: n for s in one["stages"] for r, n in s["dropped"].items()}
               for name, one in manifest["counts"].items()}  # fmt: skip
    assert dropped["oasst1"] == {"prompter_leaf": 91}
    assert dropped["openorca"] == {"not_drawn": 50}
    assert dropped["evol"] == {}
    likes = dropped["sharegpt"]["like_an_earlier_row"]
    assert 251 - likes <= 53, "more rows left than there are distinct first turns"
    assert manifest["sources"][0]["documents"] == len(talks) == 218 + 150 + 251 - likes + 187


def test_statistics_stand_beside_table_1_in_both_units_and_change_nothing(sets: SetsConfig, tmp_path: Path) -> None:
    said: list[str] = []
    _, manifest = build(dataclasses.replace(sets, near_duplicate=0), tmp_path, say=said.append)
    found = manifest["statistics"]
    assert found["oasst1"]["rounds"] == pytest.approx(386 / 218)
    assert found["sharegpt"]["rounds"] == pytest.approx((501 + 6) / 251)
    assert (found["evol"]["rounds"], found["evol"]["rows"]) == (1.0, 187)
    assert found["evol"]["completion_tokens"] > found["evol"]["completion_words"] > 1
    assert sum(target.rows for target in TABLE_1.values()) == 367_817
    table = "\n".join(said)
    for words in ("34,546", "-99.4%", "340.2", "Open Assistant 1: Apache-2.0", "no clear licence"):
        assert words in table


def test_trained_is_what_assistants_say_whatever_the_packing(sets: SetsConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(sets, sharegpt=(), evol=(), openorca_rows=40, near_duplicate=0)
    tables = {how: build(dataclasses.replace(config, packing=how), tmp_path / how)
              for how in ("best_fit", "none", "lemur")}  # fmt: skip
    alone = trained_texts(tables["none"][0])
    assert len(alone) == 258
    assert sum(text.endswith("<|im_end|>\n") for text in alone) > 190  # the others are cut at the row's length
    assert trained_texts(tables["best_fit"][0]) == alone
    assert sum(map(len, trained_texts(tables["lemur"][0]))) == sum(map(len, alone))
    rows = {how: manifest["sources"][0]["rows"] for how, (_, manifest) in tables.items()}
    assert rows["best_fit"] <= rows["lemur"] < rows["none"] == 258
    assert len({manifest["sources"][0]["trained_tokens"] for _, manifest in tables.values()}) == 1


def test_segments_are_apart_with_positions_of_their_own_and_as_lemur_did_they_are_not(tmp_path: Path) -> None:
    config = evol(tmp_path / "e.jsonl", *((f"q{i}", f"a{i}") for i in range(4)))
    apart = rows_of(build(config, tmp_path / "a", seq_len=256)[0])
    assert apart.tokens.shape == (1, 256)
    assert apart.segment_ids.max() == 4
    starts = np.flatnonzero(np.diff(apart.segment_ids[0], prepend=0) > 0)
    assert not apart.positions[0][starts].any()
    assert not apart.loss_weights[0][starts[1:] - 1].any(), "a first token is predicted from the segment before"
    joined = rows_of(build(dataclasses.replace(config, packing="lemur"), tmp_path / "b", seq_len=256)[0])
    used = int((joined.segment_ids == 1).sum())
    assert joined.segment_ids.max() == 1
    assert joined.positions[0][:used].tolist() == list(range(used))
    assert joined.tokens[0].tolist().count(TOKENIZER.eos_id) == 3
    assert not joined.loss_weights[joined.targets == TOKENIZER.eos_id].any(), "the token between examples is trained"
    assert used == int((apart.segment_ids > 0).sum()) + 3


@pytest.mark.parametrize("seq_len", [44, 45, 46, 92])
def test_rows_as_lemur_packed_them_are_never_longer_than_allowed(tmp_path: Path, seq_len: int) -> None:
    config = evol(tmp_path / "e.jsonl", *((f"q{i}", "abcd" * (i % 2 + 1)) for i in range(9)))
    rows = rows_of(build(dataclasses.replace(config, packing="lemur"), tmp_path, seq_len=seq_len)[0])
    assert rows.tokens.shape[1] == seq_len


def test_a_row_without_a_trained_token_is_dropped_and_one_that_is_cut_is_counted(tmp_path: Path) -> None:
    config = evol(tmp_path / "e.jsonl", ("q" * 100, "never seen"), ("q", "a" * 200), ("q", "a"))
    _, manifest = build(config, tmp_path, seq_len=64)
    counts = manifest["counts"]["evol"]
    assert counts["stages"][-1] == {"stage": "truncate", "in": 3, "out": 2, "dropped": {"no_trained_token": 1}}
    assert counts["kept_with"] == {"cut_at_row_length": 1}


def test_near_duplicates_of_an_instruction_fall_but_for_the_first(tmp_path: Path) -> None:
    words = " ".join(f"word{i}" for i in range(60))
    config = evol(tmp_path / "e.jsonl", (words, "first"), (f"{words} more", "second"), ("something else", "third"))
    folder, manifest = build(dataclasses.replace(config, near_duplicate=0.95, encoder="hashing:4096"), tmp_path)
    assert manifest["counts"]["evol"]["stages"][-3]["dropped"] == {"like_an_earlier_row": 1}
    assert trained_texts(folder) == ["first<|im_end|>\n", "third<|im_end|>\n"]


def sharegpt(path: Path, *questions: str) -> SetsConfig:
    talks = [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": "ok"}]} for q in questions]
    path.write_text(json.dumps(talks))
    return SetsConfig(sharegpt=(str(path),), language="", near_duplicate=0)


def test_foreign_letters_make_a_row_fall_or_only_their_sentence(tmp_path: Path) -> None:
    config = sharegpt(
        tmp_path / "s.json",
        "Fine. \u0422\u0440\u0438 \u0441\u043b\u043e\u0432\u0430. Good.",
        "\u03b1 and caf\u00e9 \U0001f642",
        "\u041f\u0440\u0438\u0432\u0435\u0442",
    )
    _, manifest = build(config, tmp_path)
    assert manifest["counts"]["sharegpt"]["stages"][2]["dropped"] == {"foreign_letters": 2}
    folder, manifest = build(dataclasses.replace(config, character_run_unit="sentence"), tmp_path)
    assert manifest["counts"]["sharegpt"]["stages"][2]["dropped"] == {"nothing_left": 1}
    assert manifest["counts"]["sharegpt"]["kept_with"] == {"sentence_removed": 1}
    assert '"Fine. Good."' in pq.read_table(folder / "conversations.parquet").column("messages").to_pylist()[0]


def test_other_languages_fall_and_what_is_no_language_stays_and_is_counted(tmp_path: Path) -> None:
    pytest.importorskip("langdetect", reason="the extra [instruct] is not installed")
    config = sharegpt(tmp_path / "s.json", "How do I sort a list of numbers?", "Comment trier une liste ?", "1 + 1 = ?")
    _, manifest = build(dataclasses.replace(config, language="en"), tmp_path)
    counts = manifest["counts"]["sharegpt"]
    assert counts["stages"][1]["dropped"] == {"not_en_but_fr": 1}
    assert counts["kept_with"] == {"language_not_detected": 1}


def test_patterns_drop_in_every_set_and_only_where_they_are_given(tmp_path: Path) -> None:
    config = evol(tmp_path / "e.jsonl", ("q", "As an AI model, I"), ("q", "yes"))
    _, manifest = build(dataclasses.replace(config, drop_patterns=(r"as an ai\b",)), tmp_path)
    assert manifest["counts"]["evol"]["stages"][3]["dropped"] == {"drop_pattern": 1}


def test_overlap_with_a_benchmark_is_reported_and_drops_where_that_is_asked_for(tmp_path: Path) -> None:
    question = "one two three four five six seven eight nine ten eleven twelve thirteen"
    (tmp_path / "bench.json").write_text(json.dumps([{"question": question}]))
    config = dataclasses.replace(
        evol(tmp_path / "e.jsonl", (f"Say: {question}", "a"), ("q", "b")),
        decontaminate=(str(tmp_path / "bench.json"),),
    )
    _, manifest = build(config, tmp_path)
    assert manifest["counts"]["evol"]["kept_with"] == {"overlaps bench.json": 1}
    assert manifest["sources"][0]["documents"] == 2
    _, manifest = build(dataclasses.replace(config, decontaminate_drop=True), tmp_path)
    assert manifest["counts"]["evol"]["stages"][-2]["dropped"] == {"overlaps bench.json": 1}
    assert manifest["sources"][0]["documents"] == 1


def test_the_draw_depends_on_the_seed_alone(sets: SetsConfig, tmp_path: Path) -> None:
    def drawn(seed: int, shelf: str) -> list[str]:
        config = SetsConfig(openorca=sets.openorca, openorca_rows=20, sets_seed=seed)
        folder, _ = build(config, tmp_path / shelf)
        return sorted(pq.read_table(folder / "conversations.parquet").column("id").to_pylist())

    assert drawn(1, "a") == drawn(1, "b") != drawn(2, "c")


def test_the_same_files_are_read_once_and_changed_ones_again(tmp_path: Path) -> None:
    config, said = evol(tmp_path / "e.jsonl", ("q", "a")), []
    first, _ = build(config, tmp_path / "shelf")
    assert build(config, tmp_path / "shelf", say=said.append)[0] == first
    assert any("used as it is" in line for line in said)
    evol(tmp_path / "e.jsonl", ("q", "a"), ("q2", "a2"))
    assert build(config, tmp_path / "shelf")[0] != first


def test_files_that_are_not_there_or_leave_nothing_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"--evol .*nothing\.jsonl: no such file"):
        build(SetsConfig(evol=(str(tmp_path / "nothing.jsonl"),)), tmp_path)
    with pytest.raises(CorpusError, match="no conversation left"):
        build(evol(tmp_path / "e.jsonl", ("q", "")), tmp_path)
    with pytest.raises(ValueError, match="hashing:DIM"):
        SetsConfig(encoder="hashing")
    with pytest.raises(ValueError, match="no regular expression"):
        SetsConfig(drop_patterns=("(",))
