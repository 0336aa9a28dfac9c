"""A built corpus, and a copy of it for each test that changes it."""

import shutil
from pathlib import Path

import pytest
from small_corpora import PROSE, Corpus, write_texts

from lemur_ray.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("first")
    Tokenizer.train([PROSE] * 20, 300).save(home / "tokenizer.json")
    for name in ("first", "second"):
        write_texts(home, name, 6)
    corpus = Corpus(home)
    assert corpus.build() == {"clean": 6, "bands": 6, "tokens": 6, "sets": 2}
    return home


@pytest.fixture
def corpus(first_build: Path, tmp_path: Path) -> Corpus:
    """A copy of a built corpus with its sources, at another path."""
    shutil.copytree(first_build, tmp_path / "copy")
    return Corpus(tmp_path / "copy")
