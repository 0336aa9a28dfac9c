"""Detection of benchmark contamination: training texts that share 13 consecutive words with a benchmark.

``overlap`` looks up single texts in a dictionary; ``NgramIndex`` looks up the n-grams of whole batches in one sorted
array, several times as fast, with words as ``cleaning.shingles`` defines them."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from lemur_ray.corpus.cleaning.shingles import VERSION, ngram_hashes
from lemur_ray.host.json_files import open_bytes, strings_in

N = 13
_WORD = re.compile(r"\w+")


def ngrams(text: str) -> Iterator[int]:
    """Yield 64-bit hashes of all runs of ``N`` words, ignoring case and punctuation; nothing for fewer words."""
    words = _WORD.findall(text.casefold())
    for begin in range(len(words) - N + 1):
        gram = " ".join(words[begin : begin + N]).encode("utf-8", "surrogatepass")
        yield int.from_bytes(hashlib.blake2b(gram, digest_size=8).digest(), "little")


def overlap(texts: Iterable[str], index: dict[int, str]) -> str | None:
    """File name of the first 13-gram of ``texts`` in ``index`` (hash -> file of a benchmark); None without any."""
    return next((index[gram] for text in texts for gram in ngrams(text) if gram in index), None)


def benchmark_index(files: Iterable[str | Path]) -> dict[int, str]:
    """Index from the hash of every 13-gram in the files to the name of the first file that contains it.
    Each string value of a .json or .jsonl file (also .gz) is a separate text; any other file is one text. Raises
    ValueError naming a file that is invalid JSON or has no 13-gram: a check against nothing would look clean."""
    index: dict[int, str] = {}
    for file in map(Path, files):
        num_ngrams = 0
        for text in _texts(file):
            for gram in ngrams(text):
                index.setdefault(gram, file.name)
                num_ngrams += 1
        if not num_ngrams:
            raise ValueError(f"benchmark file {file} holds no text of {N} words: expected .json, .jsonl or plain text")
    return index


@dataclass(frozen=True)
class NgramIndex:
    """The 13-grams of the benchmarks ``names``, and for each the benchmark that it comes from."""

    names: tuple[str, ...]
    hashes: np.ndarray
    """(n-grams,) uint64, ascending."""
    owners: np.ndarray
    """(n-grams,) int32: index into ``names`` of the first benchmark that contains the n-gram."""

    @classmethod
    def of(cls, benchmarks: Mapping[str, Iterable[str]]) -> Self:
        """Index of the texts of each benchmark. benchmarks: texts by name of the benchmark. Raises ValueError if they
        have no 13-gram: nothing would be checked."""
        parts = [ngram_hashes(list(texts), N)[0] for texts in benchmarks.values()]
        owners = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
        hashes, first = np.unique(np.concatenate([np.zeros(0, np.uint64), *parts]), return_index=True)
        if not len(hashes):
            raise ValueError(
                f"decontamination: no benchmark has a text of {N} words: fetch their data, or switch it off"
            )
        return cls(tuple(benchmarks), hashes, owners[first])

    @property
    def digest(self) -> str:
        """Hash of the n-grams and of the version of their hashing, for keys of build outputs."""
        return hashlib.sha256(b"%d/%d/" % (VERSION, N) + self.hashes.tobytes()).hexdigest()[:16]

    @cached_property
    def _bitmap(self) -> tuple[np.ndarray, np.uint64]:
        """(which values of the highest bits of a hash occur, right shift that yields these bits)."""
        bits = max(16, len(self.hashes).bit_length() + 3)
        shift = np.uint64(64 - bits)
        there = np.zeros(1 << bits, bool)
        there[self.hashes >> shift] = True
        return there, shift

    def first_owners(self, texts: Sequence[str]) -> np.ndarray:
        """(texts,) int32: index into ``names`` of the benchmark of a text's first known n-gram, -1 if none is known."""
        hashes, counts = ngram_hashes(texts, N)
        there, shift = self._bitmap
        at = np.flatnonzero(there[hashes >> shift])
        place = np.minimum(np.searchsorted(self.hashes, hashes[at]), len(self.hashes) - 1)
        known = self.hashes[place] == hashes[at]
        at, place = at[known], place[known]
        text = np.searchsorted(np.cumsum(counts), at, side="right")
        out = np.full(len(texts), -1, np.int32)
        first = np.unique(text, return_index=True)
        out[first[0]] = self.owners[place[first[1]]]
        return out

    def save(self, path: Path) -> None:
        with open(path, "wb") as f:
            np.savez(f, names=np.array(self.names), hashes=self.hashes, owners=self.owners)

    @classmethod
    def load(cls, path: Path) -> Self:
        with np.load(path) as saved:
            return cls(tuple(saved["names"].tolist()), saved["hashes"], saved["owners"])


def _texts(path: Path) -> Iterator[str]:
    with open_bytes(path) as data:
        text = data.read().decode("utf-8", "replace")
    if not path.name.removesuffix(".gz").endswith((".json", ".jsonl")):
        yield text
        return
    try:
        values = [json.loads(text)]
    except ValueError:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise ValueError(f"benchmark file {path} is neither JSON nor JSON lines ({error})") from error
    for value in values:
        yield from strings_in(value)
