"""Detection of benchmark contamination: training texts that share 13 consecutive words with a benchmark file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import open_bytes

N = 13
_WORD = re.compile(r"\w+")


def ngrams(text: str, n: int = N) -> Iterator[int]:
    """64-bit hashes of all runs of ``n`` consecutive words, ignoring case and punctuation; none for shorter texts."""
    words = _WORD.findall(text.casefold())
    for begin in range(len(words) - n + 1):
        gram = " ".join(words[begin : begin + n]).encode("utf-8", "surrogatepass")
        yield int.from_bytes(hashlib.blake2b(gram, digest_size=8).digest(), "little")


def overlap(texts: Iterable[str], index: dict[int, str]) -> str | None:
    """Name of the benchmark file of the first 13-gram in ``texts`` that ``index`` (hash to file name) has, or None."""
    return next((index[gram] for text in texts for gram in ngrams(text) if gram in index), None)


def benchmark_index(files: Iterable[str | Path]) -> dict[int, str]:
    """Index from the hash of every 13-gram in the files to the name of the first file that contains it.

    Each string value of a .json or .jsonl file (also .gz) is a separate text; any other file is one text. Raises
    ValueError naming a file that is invalid JSON or has no 13-gram: a check against nothing would look clean.
    """
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
        yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
