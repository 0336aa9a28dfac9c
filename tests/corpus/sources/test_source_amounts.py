"""How much of a source is built: tokens that are wanted, rows that are held out, files that are read."""

import dataclasses
import json
from pathlib import Path

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from tests.corpus.sources.source_entries import Write, code


def test_as_many_tokens_of_a_source_as_are_wanted_and_a_line_where_it_has_fewer(write: Write, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in code(name, 300)))
    entry = {"name": "a", "kind": "code", "uri": "{a,b,c}.jsonl"}
    config = CorpusConfig(vocab_size=300, seq_len=64, heldout_rows=0)

    def built(tokens: str) -> tuple[int, dict[str, object], list[str]]:
        sized = dataclasses.replace(config, sources=write({**entry, "tokens": tokens}))
        manifest = build(sized, tmp_path / f"corpus-{tokens}", workers=0, say=lambda line: None)
        return manifest["sources"][0]["tokens"], manifest["counts"]["a"], manifest["missing"]

    everything, counts, missing = built("9e6")
    assert (counts["read"], counts["kept"]) == (900, 900)
    assert missing == [f"a: {everything:,} tokens, of 9,000,000 wanted: it has no more"]
    tokens, counts, missing = built("3e3")
    assert 3000 <= tokens < 3200
    assert counts["read"] == 300, "one file is enough"
    assert counts["kept"] == 300 - counts["dropped"]["tokens"]  # type: ignore[index, operator]
    assert missing == []


def test_of_every_source_of_a_file_rows_are_held_out_up_to_a_hundredth_of_it(write: Write, tmp_path: Path) -> None:
    for name, count in (("large", 700), ("small", 250)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in code(name, count)))
    entries = [{"name": name, "kind": "code", "uri": f"{name}.jsonl"} for name in ("large", "small")]
    config = CorpusConfig(sources=write(*entries), vocab_size=300, seq_len=64, heldout_rows=4)
    manifest = build(config, tmp_path / "corpus", workers=0, say=lambda line: None)
    heldout = {entry["source"]: entry["text_bytes"] for entry in manifest["heldout"]}
    trained = {entry["name"]: entry["text_bytes"] for entry in manifest["sources"]}
    assert heldout.keys() == trained.keys()
    assert 0.5 * 4 * 64 * 3 < heldout["large"] <= 4 * 64 * 3
    assert 0 < heldout["small"] <= 0.01 * (trained["small"] + heldout["small"])


def test_more_files_are_read_where_too_few_tokens_are_left_of_the_first(write: Write, tmp_path: Path) -> None:
    """Of 300 documents of a file 30 are unlike all others, so one file, which is enough by its size, is not."""
    for name in "abcdef":
        texts = [*code(name, 30), *code("same", 1) * 270]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    entry = {"name": "a", "kind": "code", "uri": "{a,b,c,d,e,f}.jsonl", "tokens": "5e3"}
    config = CorpusConfig(sources=write(entry), vocab_size=300, seq_len=64, heldout_rows=0, part_mb=0.04)
    lines: list[str] = []
    manifest = build(config, tmp_path / "corpus", workers=0, say=lines.append)
    assert 5000 <= manifest["sources"][0]["tokens"] < 5200
    assert manifest["missing"] == []
    assert 300 < manifest["counts"]["a"]["read"] < 1800
    again = [line for line in lines if "too few tokens are left of the files that were read" in line]
    assert again
    done = [line.split()[3] for line in lines if line.startswith("read and filter: ")]
    assert sum(map(int, done)) * 300 == manifest["counts"]["a"]["read"], "no part is read twice"
