"""Which files a source has: sorted, sampled by seed, and an error that names the folder where there is nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.sources import embedded
from lemur_ray.corpus.sources.folders import folder_source, sample
from lemur_ray.corpus.sources.texts import FileRef, read_texts


def test_a_tree_is_walked_in_order_without_hidden_folders_and_links(tmp_path: Path) -> None:
    for name in ("b/two.py", "a.jsonl.gz", "c.parquet", ".git/config", "b/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.py").symlink_to(tmp_path / "b" / "two.py")
    os.mkfifo(tmp_path / "pipe")
    source = folder_source(f"mine:code:{tmp_path}")
    assert [(ref.name, ref.reader, ref.language) for ref in source.files] == [
        ("a.jsonl.gz", "jsonl", ""),
        ("b/two.py", "file", "python"),
        ("c.parquet", "parquet", ""),
    ]


def test_a_single_file_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "wiki.jsonl").write_text("{}")
    assert [ref.reader for ref in folder_source(f"wiki:text:{tmp_path / 'wiki.jsonl'}").files] == ["jsonl"]


def test_a_missing_or_empty_folder_is_an_error_that_names_it_and_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=rf"{tmp_path}/none does not exist; looked for text files, \.jsonl"):
        folder_source(f"mine:code:{tmp_path}/none")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    with pytest.raises(CorpusError, match=rf"{tmp_path}/deep is empty; looked for text files"):
        folder_source(f"mine:code:{tmp_path}/deep")


def test_an_unreadable_folder_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(CorpusError, match=f"{tmp_path} cannot be read by this user"):
        folder_source(f"mine:code:{tmp_path}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine:code", "expected NAME:KIND:PATH"),
        ("mine:chat:/x", "KIND one of code, text"),
        ("../up:code:/x", "expected NAME:KIND:PATH"),
        ("heldout-code:code:/x", "choose another"),
        ("mine:code:sheets://bucket/x", "cannot be listed: Protocol not known"),
    ],
)
def test_a_malformed_source_is_an_error_that_says_how_to_write_it(spec: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        folder_source(spec)


def refs(count: int, size: int = 1000) -> list[FileRef]:
    return [FileRef(f"/x/{i}", size, "file", f"label/{i:03d}") for i in range(count)]


def test_a_sample_is_seeded_sorted_and_near_its_budget() -> None:
    chosen = sample(refs(100), 20_000, seed=1)
    assert len(chosen) == 20
    assert chosen == sorted(chosen, key=lambda ref: ref.name) == sample(refs(100)[::-1], 20_000, seed=1)
    assert chosen != sample(refs(100), 20_000, seed=2)
    assert len(sample(refs(100), 1e9, seed=1)) == 100


def test_no_single_file_takes_a_budget_by_itself() -> None:
    files = [*refs(50), FileRef("/x/huge", 15_000, "file", "label/huge")]
    assert all(ref.size == 1000 for ref in sample(files, 20_000, seed=0))


@pytest.mark.slow
def test_the_embedded_corpus_is_real_code_and_text_of_this_machine() -> None:
    sources = embedded.embedded_sources(400_000, 10.0, seed=0)
    by_name = {source.name: source for source in sources}
    assert {"python", "c", "shell", "javascript", "sql", "docstrings", "docs", "packages"} == set(by_name)
    assert by_name["python"].required
    assert by_name["docstrings"].required
    read = [found for ref in by_name["python"].files for found in read_texts(ref)]
    assert any("def " in found.text for found in read)
    code = sum(ref.size for source in sources if source.kind == "code" for ref in source.files)
    assert 250_000 < code < 600_000
    assert sources == embedded.embedded_sources(400_000, 10.0, seed=0)


def test_what_one_source_lacks_goes_to_the_others_in_proportion() -> None:
    assert embedded._fill(100.0, [0.5, 0.3, 0.2], [1000.0, 10.0, 0.0]) == pytest.approx([90.0, 10.0, 0.0])
    assert embedded._fill(100.0, [0.5, 0.5], [10.0, 20.0]) == [10.0, 20.0]


def test_licences_are_known_where_the_path_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: thing\nLicense-Expression: MIT\n\nThing.\n")
    (info / "top_level.txt").write_text("thing\nthing_extra\n")
    assert embedded._package_licences(tmp_path) == {"thing": "MIT", "thing_extra": "MIT"}
