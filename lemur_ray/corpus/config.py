"""Configuration of a corpus. Every field affects the rows, and the hash of all of them names the build."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from lemur_ray.corpus.cleaning.minhash import minhash_name
from lemur_ray.corpus.sources.specs import SourceSpec, parse_source, read_sources
from lemur_ray.text.bpe_training import NUMBERED, SMALLEST

WordPattern = Literal["", "general", "numbered"]
DEFAULT_OLD_PATTERN: WordPattern = NUMBERED
"""Word pattern of corpora from before the option existed: their description has no word_pattern."""


@dataclass(frozen=True)
class CorpusConfig:
    """Sources, seed, tokenizer and packing of a corpus."""

    source: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """NAME:KIND:PATH with KIND code or text; PATH a .jsonl(.gz), .parquet or text file or a folder of them. May be
    given several times. Without any: the embedded corpus, which is this machine's own software."""
    sources: str = ""
    """YAML file, a path or URL, with a list of sources: name, kind, and uri (a path, hf://datasets/OWNER/NAME/PATTERN,
    gs://, s3://, https://, catalogue:NAME) or urls (a list of addresses); optional fields, filters, licences, tokens,
    required. See docs/guides/corpus.md."""
    embedded_mb: float = 24.0
    """Megabytes of text read for the embedded corpus."""
    code_to_text: float = 10.0
    """Bytes of code per byte of text in the embedded corpus. The mixture of a run is set by its recipe."""
    seq_len: int = 1024
    """Tokens per packed row."""
    vocab_size: int = 2048
    """Size of the vocabulary, special tokens and single bytes included; a small corpus may yield fewer."""
    word_pattern: WordPattern = ""
    """Pattern of the words within which the tokenizer merges: general, or numbered, which separates a noun from its
    number ("shelf 3"), as the demo's games need. Empty: that of the corpus in the folder, else general."""
    tokenizer: str = ""
    """A tokenizer.json, or a model folder with one, to use unchanged, for example that of the model of --init-from;
    config files in its folder define which tokens begin and end a text. Empty: train one on the corpus."""
    tokenizer_sample_mb: float = 4.0
    """Megabytes of documents on which the tokenizer is trained."""
    tokenizer_extra: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """.jsonl or text file whose texts join the tokenizer's sample and nothing else, for example transcripts of games.
    May be given several times."""
    tokenizer_extra_share: float = 0.2
    """Fraction of the tokenizer's sample that extra texts fill: they are repeated or cut to that many bytes."""
    heldout_rows: int = 32
    """Rows held out of training for validation loss by kind and by source: of each source where --sources is given, at
    most 1 % of it; else of each kind, at most 5 % of it."""
    near_duplicates: float = 0.0
    """Jaccard similarity of word 5-grams from which a document counts as a copy of an earlier one, of any source, and
    is dropped, for example 0.8. 0: only equal documents are dropped."""
    decontaminate: bool = False
    """Drop documents that share 13 consecutive words with a question or answer of a benchmark that can be played."""
    part_mb: float = 4.0
    """Megabytes of files that one task reads."""
    seed: int = 0
    """Seed of all samples: files of the embedded corpus, held-out documents, the tokenizer's texts."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("embedded_mb", 0.01, 1e6),
            ("code_to_text", 0.001, 1e6),
            ("seq_len", 16, 1 << 20),
            ("vocab_size", SMALLEST, 1 << 20),
            ("tokenizer_sample_mb", 0.001, 1e5),
            ("tokenizer_extra_share", 0.0, 0.9),
            ("heldout_rows", 0, 1 << 20),
            ("near_duplicates", 0.0, 1.0),
            ("part_mb", 0.001, 1e4),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} {getattr(self, name)}: expected {low:g} to {high:g}")

    def specs(self) -> list[SourceSpec]:
        """Specifications of all sources, those of the file first; [] for the embedded corpus. Raises CorpusError."""
        return [*(read_sources(self.sources) if self.sources else ()), *map(parse_source, self.source)]


Corpus = Annotated[CorpusConfig, tyro.conf.arg(name="")]
"""``CorpusConfig`` as command-line flags without a prefix."""


def describe(config: CorpusConfig) -> dict[str, Any]:
    """The configuration as JSON values, with the content of the file of sources in place of its name. Newer options at
    their old values are left out, which keeps older hashes. Raises CorpusError if that file cannot be read."""
    value: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    if config.sources:
        value["sources"] = [spec.to_json() for spec in read_sources(config.sources)]
        value["heldout_of"] = "source"  # releases before held out rows of each kind
    else:
        del value["sources"]
    if value["word_pattern"] in ("", DEFAULT_OLD_PATTERN):
        del value["word_pattern"]
    for name in ("near_duplicates", "decontaminate"):
        if not value[name]:
            del value[name]
    if config.near_duplicates:
        value["minhash"] = minhash_name()
    return value


def build_hash(description: dict[str, Any]) -> str:
    """First 16 hex digits of SHA-256 over the JSON description of a build; they identify the build."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
