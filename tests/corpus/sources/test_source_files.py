"""Sources named in a YAML file: of the Hub, a bucket, web lists, folders; what is wrong with one, before any work."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lemur_ray.corpus.build import build
from lemur_ray.corpus.cleaning import language
from lemur_ray.corpus.config import CorpusConfig, build_hash, describe
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.sources.folders import list_source
from lemur_ray.corpus.sources.specs import SourceSpec, read_sources
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.outside_data import byte_stream
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.recipes.lemur_mixture import TABLE_8
from lemur_ray.storage.file_system import file_system
from tests.corpus.sources.source_entries import Write, code
from tests.outside_data.local_hub import COMMIT, Fault, LocalHub, serve
from tests.source_tree import ROOT

REPO = "them/code"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with serve() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
        monkeypatch.setattr(byte_stream.time, "sleep", lambda seconds: None)
        yield served


def parquet(**columns: list[object]) -> bytes:
    pq.write_table(pa.table(columns), out := io.BytesIO(), row_group_size=20)
    return out.getvalue()


def put_code(hub: LocalHub) -> None:
    for part, schema in (("0", "licences"), ("1", "licences"), ("2", "nothing")):
        texts: list[object] = list(code(part))
        columns = {"content": texts, "lang": [None if part == "0" else "Python"] * 50, "repo": [f"own/{part}"] * 50}
        columns |= {"licences": [["MIT"] if i % 2 else ["GPL-3.0"] for i in range(50)]} if schema == "licences" else {}
        hub.put(f"data/python/{part}.parquet", parquet(**columns), REPO)
    hub.put("README.md", b"# card\n", REPO)


STACK = {
    "name": "python", "kind": "code", "uri": f"hf://datasets/{REPO}/data/python/*.parquet", "filters": "code",
    "fields": {"text": "content", "licence": "licences", "language": "lang", "origin": "repo"},
}  # fmt: skip


def test_a_set_of_the_hub_is_listed_at_one_commit_and_read_with_its_columns(hub: LocalHub, write: Write) -> None:
    put_code(hub)
    (spec,) = read_sources(write(STACK))
    source = list_source(spec)
    assert [ref.path for ref in source.files] == [
        f"hf://datasets/{REPO}@{COMMIT}/data/python/{part}.parquet" for part in "012"
    ]
    assert all(ref.version and ref.size for ref in source.files)
    for place in ("0.parquet", "1.parquet"):
        hub.faults[place] = [Fault(429, {"Retry-After": "1"}), Fault(after=100), Fault(503)]
    items = [item for ref in source.files for item in read_texts(ref)]
    assert [item.text for item in items] == [text for part in "012" for text in code(part)]
    assert [(item.licence, item.language, item.origin) for item in items[49:52]] == [
        ("MIT", "", "own/0"),
        ("GPL-3.0", "Python", "own/1"),
        ("MIT", "Python", "own/1"),
    ]
    assert {item.licence for item in items[100:]} == {""}, "a schema that changes between files loses nothing"
    assert not any(hub.faults.values())
    resolved = [path for _, path, _ in hub.requests if "/resolve/" in path]
    assert all(COMMIT in path for path in resolved)
    assert len([path for _, path, _ in hub.requests if path.startswith("/api/datasets")]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, r"them/code is gated .*accept its terms at http.*/datasets/them/code and set HF_TOKEN"),
        ({"uri": f"hf://datasets/{REPO}@{'0' * 40}/data/*"}, rf"has no .* in {REPO} at 0{{40}}: its owners removed"),
        ({"uri": f"hf://datasets/{REPO}/none/*"}, "is empty or not there"),
        ({"uri": "hf://datasets/them/missing/*"}, "has no data set them/missing"),
        ({"uri": "hf://datasets/wrong"}, "expected hf://datasets/OWNER/NAME"),
        ({"uri": "catalogue:nothing"}, "data set nothing: unknown; the catalogue has the-stack-dedup/python, "),
        ({"uri": "catalogue:books"}, "were withdrawn"),
        ({"uri": "catalogue:refinedweb-2"}, "unknown"),
        ({"uri": "catalogue:the-stack-dedup/sql"}, r"terms to accept first: .*Add accept_terms: true"),
        ({"uri": "catalogue:dm-mathematics"}, "python jobs/fetch_data.py dm-mathematics"),
        ({"kind": "chat"}, "expected KIND one of code, text"),
        ({"filters": "strict"}, "filters 'strict': expected one of code, prose, web"),
        ({"filters": {"base": "code", "max_lin": 5}}, "source python: filters: unknown threshold max_lin; expected"),
        ({"filters": {"max_line": "5"}}, "max_line '5': expected a number"),
        ({"filters": 5}, "filters 5, expected a name or a mapping"),
        ({"licences": {"deny": ["GPL-3.0"]}}, r"licences {'deny': .*expected {allow: \[LICENCE, ...\]}"),
        ({"licences": {"allow": "MIT"}}, "licences {'allow': 'MIT'}, expected"),
        ({"licences": []}, r"licences \[\], expected"),
        ({"required": "no"}, "required 'no', expected true or false"),
        ({"fields": "content"}, "fields 'content', expected a mapping"),
        ({"fields": {"body": "x"}}, r"fields \['body'\], expected some of text, licence"),
        ({"fields": {"text": ["a", "b"]}}, r"fields name \[\['a', 'b'\]\], expected names of columns"),
        ({"fields": {"text": None}}, r"fields name \[None\]"),
        ({"filters": {"base": ["prose"]}}, r"filters \['prose'\]: expected one of"),
        ({"filters": {"languages": ["da", False]}}, r"languages \['da', False\]: expected codes .*write no in quotes"),
        ({"filters": {"languages": None}}, "languages None: expected codes"),
        ({"tokens": math.nan}, "tokens nan, expected at least 0"),
        ({"tokens": "inf"}, "tokens inf, expected at least 0"),
        ({"tokens": True}, "tokens True, expected a text or number"),
        ({"language": False}, "language False, expected a text .*write no in quotes"),
        ({"urls": "x"}, "expected either uri or urls"),
        ({"tokens": "many"}, "source 1 .python.: could not convert"),
        ({"token": 5}, r"unknown token; expected some of name, kind, uri"),
        ({"name": "../up"}, "expected a name of letters"),
    ],
)
def test_what_is_wrong_with_a_source_is_named_before_any_work(
    change: dict[str, object],
    message: str,
    hub: LocalHub,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEMUR_DATA", str(tmp_path / "data"))
    put_code(hub)
    hub.gated.add(REPO) if not change else None
    with pytest.raises(CorpusError, match=message):
        build(CorpusConfig(sources=write({**STACK, **change})), tmp_path / "corpus", workers=0)
    assert not list((tmp_path / "corpus").glob(".build/*/clean/*"))


def test_a_gated_set_is_read_with_a_token_that_appears_nowhere(
    hub: LocalHub, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_code(hub)
    hub.gated.add(REPO)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    lines: list[str] = []
    config = CorpusConfig(sources=write(STACK), vocab_size=300, seq_len=64)
    manifest = build(config, tmp_path / "corpus", workers=0, say=lines.append)
    assert manifest["counts"]["python"]["read"] == 150
    kept = [path for path in (tmp_path / "corpus").rglob("*") if path.is_file()]
    assert not any(hub.token.encode() in path.read_bytes() for path in kept)
    assert hub.token not in "".join(lines)


def test_files_at_web_addresses_in_a_bucket_and_in_folders_are_sources(
    hub: LocalHub, write: Write, tmp_path: Path
) -> None:
    records = [{"text": f"text {i}", "meta": {"url": f"https://site/{i}"}} for i in range(30)]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    hub.put("arxiv_0.jsonl", lines[: len(lines) // 30 * 10], "web/files")
    hub.put("c4.00000.json.gz", gzip.compress(lines), "web/files")
    web = f"{hub.url}/datasets/web/files/resolve/{COMMIT}"
    (tmp_path / "list.txt").write_text(f"# two files\n{web}/c4.00000.json.gz\n\n{web}/c4.00000.json.gz\n")
    fs, there = file_system("memory://bucket/c4")
    for name in ("en/a.json.gz", "en/b.json.gz", "de/c.json.gz"):
        fs.pipe_file(f"{there}/{name}", gzip.compress(lines))
    (tmp_path / "data/deep").mkdir(parents=True)
    for name in ("data/one.json.gz", "data/deep/two.json.gz", "data/other.txt"):
        (tmp_path / name).write_bytes(gzip.compress(lines))
    entries = [
        {"name": "listed", "urls": "list.txt"},
        {"name": "web", "uri": f"{web}/c4.00000.json.gz"},
        {"name": "bucket", "uri": "memory://bucket/c4/en/*.json.gz"},
        {"name": "folder", "uri": "data/*.json.gz"},
        {"name": "choice", "uri": "data/**/{one,two}.json.gz"},
    ]
    specs = read_sources(write(*({"kind": "text", "fields": {"origin": "meta.url"}, **entry} for entry in entries)))
    read = {spec.name: [item for ref in list_source(spec).files for item in read_texts(ref)] for spec in specs}
    assert {name: len(items) for name, items in read.items()} == {
        "listed": 60, "web": 30, "bucket": 60, "folder": 30, "choice": 60,
    }  # fmt: skip
    assert [item.origin for item in read["web"]] == [f"https://site/{i}" for i in range(30)]
    fs.rm(there, recursive=True)


def test_two_sources_of_one_name_and_a_licence_filter_that_leaves_nothing(write: Write, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t, "license": "GPL-3.0"}) + "\n" for t in code("a")))
    entry = {"name": "a", "kind": "code", "uri": "a.jsonl"}
    with pytest.raises(CorpusError, match="sources a, a: every source needs a name of its own"):
        build(CorpusConfig(sources=write(entry, entry)), tmp_path / "corpus", workers=0)
    strict = {**entry, "licences": {"allow": ["MIT"]}}
    with pytest.raises(CorpusError, match=r"source a: no document is left of 50 in 1 files \(dropped: licence 50\)"):
        build(CorpusConfig(sources=write(strict)), tmp_path / "corpus", workers=0)


def test_a_source_that_loses_over_half_and_a_column_without_values_are_reported(write: Write, tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    for i, text in enumerate(code("mixed", 60)):
        (tmp_path / f"mixed/{i:02}.py").write_bytes(f"{text}# é\n".encode("latin-1" if i % 3 else "utf-8"))
    entries = {name: [{"text": t, "repo": "own/x" if i else ""} for i, t in enumerate(code(name, 60))] for name in "ab"}
    for name, records in entries.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = {"licence": "licens", "origin": "repo"}
    specs = [{"name": name, "kind": "code", "uri": f"{name}.jsonl", "fields": fields} for name in "ab"]
    specs[1] = {**specs[1], "licence": "MIT"}
    lines: list[str] = []
    config = CorpusConfig(
        sources=write({"name": "mixed", "kind": "code", "uri": "mixed"}, *specs),
        vocab_size=300,
        seq_len=64,
        part_mb=0.005,
    )
    for _ in range(2):
        build(config, tmp_path / "corpus", workers=0, say=lines.append, overwrite=True)
        (tmp_path / "corpus/manifest.json").unlink()
        reported = [line for line in lines if "more than half" in line or "no document has" in line]
        assert reported == [
            "mixed: more than half is dropped, 40 of 60 documents: invalid_utf8 40",
            "a: no document has a value in column 'licens', which fields names as its licence",
        ]
        lines.clear()


def test_chosen_languages_without_a_detector_are_an_error_that_names_the_package(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "detector_name", language.detector_name.__wrapped__)
    monkeypatch.setattr("lemur_ray.corpus.sources.stage_keys.detector_name", language.detector_name)
    monkeypatch.setattr(language, "LIBRARIES", ("none-of-this-name",))
    (tmp_path / "a.txt").write_text("text")
    entry = {"name": "a", "kind": "text", "uri": "a.txt", "filters": {"languages": ["en"]}}
    with pytest.raises(CorpusError, match=r"^languages are chosen .*pip install 'lemur-ray\[corpus\]'$"):
        build(CorpusConfig(sources=write(entry)), tmp_path / "corpus", workers=0)


def test_one_damaged_file_commits_nothing_unless_it_is_allowed_and_costs_no_finished_part(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "good.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in code("good", 300)))
    whole = gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in code("bad", 300)).encode())
    (tmp_path / "bad.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    entries = [{"name": one.split(".")[0], "kind": "code", "uri": one} for one in ("good.jsonl", "bad.jsonl.gz")]
    config = CorpusConfig(sources=write(*entries[:1], {**entries[1], "required": False}), vocab_size=300, seq_len=64)
    lines: list[str] = []
    for _ in range(2):
        with pytest.raises(
            CorpusError, match=r"1 of 2 parts cannot be read: bad: bad.jsonl.gz, after \d+ documents, nea"
        ):
            build(config, tmp_path / "corpus", workers=0, say=lines.append)
        assert not (tmp_path / "corpus/manifest.json").exists()
    assert [line.split(" in ")[0] for line in lines if line.startswith("read")] == [
        "read and filter: 2 parts",
        "read and filter: 1 parts",
    ]
    manifest = build(config, tmp_path / "corpus", workers=0, allow_failed=1)
    assert [(one["source"], one["file"]) for one in manifest["failed"]] == [("bad", "bad.jsonl.gz")]
    assert manifest["counts"]["good"]["read"] == 300
    assert manifest["counts"]["bad"]["read"] == 0


def test_the_hash_of_a_build_is_that_of_the_sources_not_of_their_file(write: Write, tmp_path: Path) -> None:
    first = build_hash(describe(CorpusConfig(sources=write(STACK))))
    (tmp_path / "moved.yaml").write_text(f"# a comment\n{json.dumps([STACK])}")
    assert build_hash(describe(CorpusConfig(sources=str(tmp_path / "moved.yaml")))) == first
    assert build_hash(describe(CorpusConfig(sources=write({**STACK, "tokens": "1e9"})))) != first
    assert "sources" not in describe(CorpusConfig())


def test_the_sources_of_table_8_ship_with_the_tokens_that_a_run_visits() -> None:
    specs = {spec.name: spec for spec in read_sources(str(ROOT / "lemur_ray/recipes/table8.yaml"))}
    assert list(specs) == [row.name for row in TABLE_8]
    for row in TABLE_8:
        unique = row.effective_tokens_billion / max(row.epochs or 1.0, 1.0)
        assert specs[row.name].tokens == pytest.approx(unique * 1e9, rel=0.01)
        assert specs[row.name].kind == row.kind
    assert sum(spec.tokens for spec in specs.values()) == pytest.approx(46.1e9, rel=0.001)
    known = {one.name for one in TRAINING}
    assert all(spec.uri.removeprefix("catalogue:") in known for spec in specs.values() if spec.name != "others")


def test_a_specification_survives_as_json() -> None:
    spec = SourceSpec("a", "code", "x", fields={"text": "t"}, licences=("MIT",), filters={"base": "code"}, tokens=2.0)
    assert SourceSpec(**{**spec.to_json(), "licences": ("MIT",)}) == spec
