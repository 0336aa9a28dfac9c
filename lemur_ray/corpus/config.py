"""What a corpus is built from, as one frozen value: everything in it decides the rows, and its hash names the build."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from lemur_ray.text.bpe_training import NUMBERED, SMALLEST

SMALLEST_VOCABULARY = SMALLEST
WordPattern = Literal["", "general", "numbered"]
DEFAULT_OLD_PATTERN: WordPattern = NUMBERED
"""The word pattern of corpora whose description names none."""


@dataclass(frozen=True)
class CorpusConfig:
    """Sources, filters' seed, tokenizer and packing of a corpus."""

    source: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """NAME:KIND:PATH with KIND code or text; PATH a .jsonl(.gz), .parquet or text file or a folder of them. May be
    given several times. None: the embedded corpus, which is this machine's own software."""
    embedded_mb: float = 24.0
    """Millions of bytes of text read for the embedded corpus."""
    code_to_text: float = 10.0
    """Bytes of code per byte of text in the embedded corpus; the order of a run is set by its recipe."""
    seq_len: int = 1024
    """Tokens of one packed row."""
    vocab_size: int = 2048
    """Tokens of the vocabulary, specials and single bytes included; a small corpus may give fewer."""
    word_pattern: WordPattern = ""
    """What the tokenizer's merges may lie inside of: general, or numbered, where a noun before a number ("shelf 3") and
    that number are each by themselves, as the demo's games want it. Empty: that of the corpus in the folder, else
    general."""
    tokenizer: str = ""
    """A tokenizer.json, or the folder of a model with one, to use as it is, for example of the model that --init-from
    of a run will name; the small files beside it say which tokens begin and end a text. Empty: one is trained on the
    corpus."""
    tokenizer_sample_mb: float = 4.0
    """Millions of bytes of documents that the tokenizer is trained on."""
    tokenizer_extra: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """.jsonl or text file whose texts join the tokenizer's sample and nothing else, for example transcripts of games.
    May be given several times."""
    tokenizer_extra_share: float = 0.2
    """Share of the tokenizer's sample that extra texts get: repeated or cut to that many bytes."""
    heldout_rows: int = 32
    """Rows of each kind kept out of training, for held-out loss by kind and by source; at most 5 % of the kind."""
    part_mb: float = 4.0
    """Millions of bytes of files that one task reads."""
    seed: int = 0
    """Seed of all samples: files of the embedded corpus, held-out documents, the tokenizer's texts."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("embedded_mb", 0.01, 1e6),
            ("code_to_text", 0.001, 1e6),
            ("seq_len", 16, 1 << 20),
            ("vocab_size", SMALLEST_VOCABULARY, 1 << 20),
            ("tokenizer_sample_mb", 0.001, 1e5),
            ("tokenizer_extra_share", 0.0, 0.9),
            ("heldout_rows", 0, 1 << 20),
            ("part_mb", 0.001, 1e4),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} {getattr(self, name)}: expected {low:g} to {high:g}")


def describe(config: CorpusConfig) -> dict[str, Any]:
    """JSON form of a configuration."""
    value: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    if value["word_pattern"] in ("", DEFAULT_OLD_PATTERN):
        del value["word_pattern"]
    return value


def build_hash(description: dict[str, Any]) -> str:
    """16 hex digits over everything that decides the rows."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
