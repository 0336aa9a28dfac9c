"""What a build reports: a line a source while it reads, statistics that add up, and the page of the corpus."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_corpora import PROSE, QUESTION, write_texts

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.report.inputs import ReportError
from lemur_ray.report.pages.pretraining.corpus_page import render_corpus, write_corpus_page


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """(folder, manifest, lines that the build printed) of a corpus with documents that each kind of rule drops."""
    home, lines = tmp_path_factory.mktemp("reported"), list[str]()
    write_texts(home, "files", 6)
    text = (home / "files" / "0.txt").read_text()
    (home / "files" / "same.txt").write_text(text.upper())
    (home / "files" / "similar.txt").write_text(f"{text} edited")
    (home / "files" / "question.txt").write_text(f"{PROSE} {QUESTION} {PROSE}")
    records = [{"text": f"<script>{i}</script>", "licence": "MIT"} for i in range(15)]
    write_texts(home, "records", 5)
    texts = [path.read_text() for path in sorted((home / "records").iterdir())]
    records += [{"text": text, "licence": ["MIT", "CC0"][i % 2], "lang": "en"} for i, text in enumerate(texts)]
    (home / "records.jsonl").write_text("\n".join(map(json.dumps, records)))
    specs = [
        {"name": "files", "kind": "text", "uri": str(home / "files"), "tokens": 4000},
        {"name": "records", "kind": "text", "uri": str(home / "records.jsonl"), "tokens": 2000},
    ]
    (home / "sources.yaml").write_text(json.dumps(specs))
    config = CorpusConfig(
        sources=str(home / "sources.yaml"), vocab_size=300, seq_len=128, near_duplicates=0.8, decontaminate=True,
        heldout_rows=0, part_mb=0.002,
    )  # fmt: skip
    manifest = build(config, home / "corpus", workers=0, benchmarks={"farm": [QUESTION]}, say=lines.append)
    return home / "corpus", manifest, lines


def test_while_it_reads_a_build_reports_a_line_a_source(built: tuple[Path, dict[str, Any], list[str]]) -> None:
    lines = [line for line in built[2] if "MB/s" in line]
    assert len(lines) == 2
    assert re.fullmatch(
        r"files: read 9, kept 9, dropped none; \d+\.\d MB/s, about \d+ s left for all sources", lines[0]
    )
    assert lines[1].startswith("records: read 20, kept 5, dropped too_short 15; ")


def test_statistics_add_up_and_have_ten_examples_of_a_rule(built: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, manifest, _ = built
    statistics = json.loads((folder / "statistics.json").read_text())
    for what in ("languages", "licences"):
        documents, tokens = map(sum, zip(*statistics[what].values(), strict=True))
        assert documents == sum(source["documents"] for source in manifest["sources"])
        assert tokens == sum(source["tokens"] for source in manifest["sources"])
    assert set(statistics["languages"]) == {"", "en"}
    examples = statistics["examples"]
    assert {rule: len(ones) for rule, ones in examples.items()} == {
        "benchmark": 1, "duplicate": 1, "near_duplicate": 1, "too_short": 10,
    }  # fmt: skip
    assert examples["too_short"][0] == ["records", "records.jsonl:0.1", "<script>0</script>"]
    assert examples["benchmark"][0][:2] == ["files", "question.txt"]


def test_the_page_shows_the_numbers_and_escapes_texts(built: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, manifest, _ = built
    assert write_corpus_page(str(folder)) == f"{folder}/corpus.html"
    page = (folder / "corpus.html").read_text()
    assert "<script>0" not in page
    text = html.unescape(re.sub(r"<[^>]+>", " ", page.partition("<body")[2]))
    tokens = sum(source["tokens"] for source in manifest["sources"])
    for expected in (
        f"{tokens:,} tokens", "too short: 15 documents, 10 shown", "<script>9</script>", "Documents that overlap a "
        "benchmark: farm: 1", "verified Jaccard similarity of at least 0.8", "CC0", "not recorded", "as asked",
    ):  # fmt: skip
        assert expected in text, expected
    assert "nothing is fetched" not in page
    assert not re.findall(r'(?:src|href)="?http', page)


def test_the_page_lists_what_was_not_read_left_out_and_removed(built: tuple[Path, dict[str, Any], list[str]]) -> None:
    failed = {"part": 3, "source": "web", "file": "a.gz", "position": "byte 9", "reason": "cut short"}
    manifest = {**built[1], "failed": [failed], "missing": ["books: left out, 0 documents"], "removed": 2}
    assert re.findall(r"<li>([^<]+)</li>", str(render_corpus(manifest, {})).partition("<table")[0]) == [
        "not read, part 3 of web: a.gz, byte 9: cut short",
        "books: left out, 0 documents",
        "2 documents were removed after the build",
    ]


def test_the_page_of_a_corpus_of_an_earlier_release_has_its_counts(
    built: tuple[Path, dict[str, Any], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text((built[0] / "manifest.json").read_text())
    write_corpus_page(str(tmp_path))
    assert "Dropped by the filters" in (tmp_path / "corpus.html").read_text()
    with pytest.raises(ReportError, match=r"holds no manifest\.json: run jobs/build_corpus\.py"):
        write_corpus_page(str(tmp_path / "none"))
