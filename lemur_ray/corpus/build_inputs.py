"""Inputs of a corpus build: its sources, extra texts, benchmarks, a given tokenizer, and what identifies it."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.config import DEFAULT_OLD_PATTERN, CorpusConfig, WordPattern, describe
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.sources.embedded import embedded_sources
from lemur_ray.corpus.sources.folders import Source, folder_source, list_source
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.host.home import resolve_out
from lemur_ray.text.bpe_training import GENERAL
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_path


def described(
    config: CorpusConfig, committed: dict[str, Any] | None, extra: Sequence[str], given: Tokenizer | None
) -> tuple[CorpusConfig, dict[str, Any]]:
    """(configuration with a word pattern filled in, JSON description of it, of the extra texts and of the tokenizer).
    ``corpus.config.build_hash`` of the description identifies the build. committed: manifest at the destination, {} if
    damaged, None without one. given: a tokenizer that is used unchanged."""
    if not config.word_pattern:
        config = dataclasses.replace(config, word_pattern=_word_pattern(committed))
    description = describe(config)
    if given is None:
        del description["tokenizer"]
    else:
        description.pop("word_pattern", None)
        description["tokenizer"] = hashlib.sha256("\0".join(given.to_files().values()).encode()).hexdigest()[:16]
    return config, {**description, "extra": hashlib.sha256("\0".join(extra).encode()).hexdigest()[:16]}


def _word_pattern(committed: dict[str, Any] | None) -> WordPattern:
    """Word pattern of the committed corpus (numbered if it records none); general if no corpus is committed."""
    pattern = (
        (committed or {"config": {"word_pattern": GENERAL}}).get("config", {}).get("word_pattern", DEFAULT_OLD_PATTERN)
    )
    return GENERAL if pattern == GENERAL else DEFAULT_OLD_PATTERN


def read_extra_texts(config: CorpusConfig) -> list[str]:
    """Texts of the files in ``config.tokenizer_extra``. Raises CorpusError if a file is missing or contains no text,
    ReadFailure if it cannot be read to its end."""
    texts = []
    for path in config.tokenizer_extra:
        source = folder_source(f"tokenizer-extra:text:{path}")
        of_file = [item.text for ref in source.files for item in read_texts(ref) if item.rule is None]
        if not of_file:
            raise CorpusError(f"tokenizer_extra {path}: no text in it; expected {source.looked_for}")
        texts += of_file
    return texts


def benchmark_index(config: CorpusConfig, benchmarks: Mapping[str, Sequence[str]] | None) -> NgramIndex | None:
    """Index of the 13-grams of the benchmarks (name -> texts); None if ``config`` does not ask for decontamination.
    Raises CorpusError if they have no 13-gram."""
    try:
        return NgramIndex.of(benchmarks or {}) if config.decontaminate else None
    except ValueError as error:
        raise CorpusError(str(error)) from error


def given_tokenizer(config: CorpusConfig) -> Tokenizer | None:
    """Tokenizer at ``config.tokenizer``, None if that is empty. Raises CorpusError if it is missing or damaged."""
    if not config.tokenizer:
        return None
    try:
        return load_path(resolve_out(config.tokenizer, ""))
    except (ImportError, OSError, ValueError) as error:
        raise CorpusError(f"--tokenizer: {error}") from error


def list_sources(config: CorpusConfig) -> list[Source]:
    """The sources of a configuration, in its order, with their files; the embedded ones if it names none. Reads folders
    and lists of files, also remote ones. Raises CorpusError if one cannot be listed or two have the same name."""
    if not (config.source or config.sources):
        return embedded_sources(int(config.embedded_mb * 1e6), config.code_to_text, config.seed)
    names = [spec.name for spec in config.specs()]
    if len(set(names)) < len(names):
        raise CorpusError(f"sources {', '.join(names)}: every source needs a name of its own")
    return [list_source(spec) for spec in config.specs()]
