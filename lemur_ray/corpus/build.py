"""A corpus from its configuration: list, clean, deduplicate, tokenise, pack, commit.

A build may be killed at any moment: every step commits its output by a rename, the manifest comes last, and the same
command resumes the build and writes the same bytes. Knows the order of the steps; each is in its own file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lemur_ray.corpus import assembly, stages
from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.comparison.all_documents import compare_documents
from lemur_ray.corpus.config import DEFAULT_OLD_PATTERN, CorpusConfig, WordPattern, build_hash, describe
from lemur_ray.corpus.locations import CorpusLocation, corpus_location
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.selection import CleanDocuments, select_documents
from lemur_ray.corpus.sources.embedded import embedded_sources
from lemur_ray.corpus.sources.folders import Source, folder_source, list_source
from lemur_ray.corpus.sources.listing import Listing, read_listing, write_listing
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.corpus.step_files import SharedFolder
from lemur_ray.host.file_lock import hold
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.host.home import resolve_out
from lemur_ray.text.bpe_training import GENERAL
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_path

Say = Callable[[str], None]

_WORK = ".build"
_SAY_EVERY_S = 5.0
_SHOWN = 5
"""Number of failed parts that an error message names."""
_DISK_PER_BYTE = 3.0
"""Disk used while building per byte of listed files: cleaned text, tokens and rows."""


def _print(line: str) -> None:
    print(f"[corpus] {line}", flush=True)


def build(
    config: CorpusConfig,
    folder: str | Path,
    overwrite: bool = False,
    *,
    extra_texts: Sequence[str] = (),
    benchmarks: Mapping[str, Sequence[str]] | None = None,
    workers: int | None = None,
    allow_failed: int = 0,
    say: Say = _print,
) -> dict[str, Any]:
    """Build the corpus in ``folder``, a path or URL, unless it is complete there already; returns its manifest.

    ``benchmarks``: by name, the texts that ``config.decontaminate`` keeps out. ``extra_texts`` join those of
    ``config.tokenizer_extra`` in the tokenizer's sample. ``workers``: tasks at once on the cluster that
    ``ray.init`` has joined (default: as many as it has cores), or 0 to do everything in this process without Ray;
    the rows do not depend on it. ``allow_failed``: number of parts that may be left out because their files cannot
    be read to the end; the manifest lists them. ``overwrite``: replace a complete corpus of another configuration.
    Raises CorpusError if there is such a corpus and ``overwrite`` is False, a source has no documents, more than
    ``allow_failed`` parts cannot be read, the folder cannot be written, or the disk is full; finished parts stay.
    """
    location = corpus_location(folder, config, workers, overwrite, say)
    work_folder, description = location.folder, None
    try:
        extra, given = [*_extra_texts(config), *extra_texts], _given_tokenizer(config)
        index = _benchmark_index(config, benchmarks)
        config, description = _described(config, location.committed(), extra, given)
        description |= {"benchmarks": index.digest} if index else {}
        work_folder.mkdir(parents=True, exist_ok=True)
        with _exclusive(work_folder, say):
            if manifest := location.reusable(description, overwrite, say):
                shutil.rmtree(work_folder / _WORK, ignore_errors=True)
                return manifest
            cluster = Workers(workers, location.shared_folder)
            if reason := cluster.fallback_reason:
                say(f"only this host works: {reason}; with --out and every --source in a bucket all hosts do")
            made = _Build(config, location, work_folder, description, cluster, allow_failed, index, say)
            return made.run(extra, given)
    except (ImportError, OSError) as error:  # a worker's host may lack the bucket's client
        if description and (manifest := location.made_meanwhile(description)):
            say(f"{location.name} was made by another process meanwhile: used as it is")
            return manifest
        if is_full_disk(error):
            raise CorpusError(
                f"{work_folder}: the disk is full ({error}): free some, the same command goes on"
            ) from error
        raise CorpusError(f"{location.name} cannot be written ({error}): choose another --out") from error


def _described(
    config: CorpusConfig, committed: dict[str, Any] | None, extra: Sequence[str], given: Tokenizer | None
) -> tuple[CorpusConfig, dict[str, Any]]:
    """(configuration with a word pattern, JSON description of it, of the extra texts and of the tokenizer).

    ``build_hash`` of the description identifies the build. committed: manifest at the destination, if any.
    """
    if not config.word_pattern:
        config = dataclasses.replace(config, word_pattern=_word_pattern(committed))
    description = describe(config)
    if given is None:
        del description["tokenizer"]
    else:
        description.pop("word_pattern", None)
        description["tokenizer"] = hashlib.sha256("\0".join(given.to_files().values()).encode()).hexdigest()[:16]
    return config, {**description, "extra": hashlib.sha256("\0".join(extra).encode()).hexdigest()[:16]}


@contextlib.contextmanager
def _exclusive(folder: Path, say: Say) -> Iterator[None]:
    """Wait for and hold the lock of a corpus folder; the kernel releases it when this process ends for any reason."""
    message = f"another process is building {folder}: waiting for it"
    with hold(folder / ".lock", wait_s=None, waiting=lambda: say(message)):
        yield


def _word_pattern(committed: dict[str, Any] | None) -> WordPattern:
    """Word pattern of the committed corpus (numbered if it records none); general if no corpus is committed."""
    pattern = (
        (committed or {"config": {"word_pattern": GENERAL}}).get("config", {}).get("word_pattern", DEFAULT_OLD_PATTERN)
    )
    return GENERAL if pattern == GENERAL else DEFAULT_OLD_PATTERN


def _extra_texts(config: CorpusConfig) -> list[str]:
    """Texts of the files in ``config.tokenizer_extra``. Raises CorpusError if a file contains no text."""
    texts = []
    for path in config.tokenizer_extra:
        source = folder_source(f"tokenizer-extra:text:{path}")
        of_file = [item.text for ref in source.files for item in read_texts(ref) if item.rule is None]
        if not of_file:
            raise CorpusError(f"tokenizer_extra {path}: no text in it; expected {source.looked_for}")
        texts += of_file
    return texts


def _benchmark_index(config: CorpusConfig, benchmarks: Mapping[str, Sequence[str]] | None) -> NgramIndex | None:
    """Index of the benchmarks' texts if ``config`` asks for it. Raises CorpusError if they have no n-gram."""
    try:
        return NgramIndex.of(benchmarks or {}) if config.decontaminate else None
    except ValueError as error:
        raise CorpusError(str(error)) from error


def _given_tokenizer(config: CorpusConfig) -> Tokenizer | None:
    """Tokenizer at ``config.tokenizer``, None if that is empty. Raises CorpusError if it is missing or damaged."""
    if not config.tokenizer:
        return None
    try:
        return load_path(resolve_out(config.tokenizer, ""))
    except (ImportError, OSError, ValueError) as error:
        raise CorpusError(f"--tokenizer: {error}") from error


@dataclass(frozen=True)
class _Build:
    """One build of a corpus: its configuration, destination and workers; ``run`` executes the steps."""

    config: CorpusConfig
    location: CorpusLocation
    folder: Path
    description: dict[str, Any]
    workers: Workers
    allow_failed: int
    index: NgramIndex | None
    """N-grams of benchmarks whose documents are dropped, if any."""
    say: Say

    @property
    def work(self) -> Path:
        return self.folder / _WORK / build_hash(self.description)

    def run(self, extra: Sequence[str], given: Tokenizer | None) -> dict[str, Any]:
        """Execute all steps and commit the corpus; returns its manifest. given: tokenizer to use, None to train one."""
        sources = self._sources()
        handover = self.location.handover(self.work, sources)
        try:
            return self._run(sources, handover, extra, given)
        except FileNotFoundError:
            handover.check()  # BuildGone if the whole build was removed
            raise

    def _run(
        self, sources: list[Source], handover: SharedFolder, extra: Sequence[str], given: Tokenizer | None
    ) -> dict[str, Any]:
        began = time.monotonic()
        work, config = self.work, self.config
        listing = self._list(sources, handover)
        parts = range(listing.num_parts)
        cleaning = [{"number": n} for n in handover.parts_to_do("clean", parts)]
        self._parallel("read and filter", handover.runs(stages.clean_part), cleaning)
        handover.fetch(*(f"clean/{n:05d}{suffix}" for n in parts for suffix in (".json", ".ids", ".sizes")))
        failed = self._check_failed(stages.failed_parts(work, parts), listing, handover)
        drops, overlaps = compare_documents(work, listing.num_parts, config, self.index, handover, self._parallel)
        clean, missing = select_documents(work, listing, config, drops)
        for line in missing:
            self.say(line)
        sizes = clean.sizes[clean.keep]
        read = sum(count["read"] for count in clean.counts)
        self.say(f"kept {len(sizes):,} of {read:,} documents, {sizes.sum() / 1e6:.1f} MB")
        if given is None:
            sampled = assembly.sampled_parts(listing, config)
            handover.fetch(*(f"clean/{number:05d}.parquet" for numbers in sampled for number in numbers))
        tokenizer = assembly.make_tokenizer(work, listing, clean, config, extra, given)
        origin = f"as in {config.tokenizer}" if given else f"{len(extra)} extra texts in its sample"
        self.say(f"tokenizer: {tokenizer.vocab_size} tokens, {origin}")
        handover.send("keep/", f"{stages.TOKENIZER}/")
        tokenising = [{"number": n} for n in handover.parts_to_do("tokens", parts)]
        self._parallel("tokenise", handover.runs(stages.tokenise_part), tokenising)
        handover.fetch(*(f"tokens/{n:05d}.lengths" for n in parts))
        sets = assembly.row_sets(work, listing, clean, config)
        missing += self._short_of_tokens(listing, clean)
        self._pack(sets, tokenizer, handover)
        manifest = assembly.manifest(self.folder, work, listing, clean, sets, config)
        manifest |= {"missing": missing, "build": build_hash(self.description), "config": self.description}
        manifest |= {"failed": failed} if failed else {}
        manifest |= {"benchmark_overlaps": overlaps} if overlaps else {}
        handover.check()
        manifest = self.location.commit(manifest)
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        self.say(f"committed {self.location.name} after {time.monotonic() - began:.0f} s")
        return manifest

    def _check_failed(
        self, failed: list[dict[str, Any]], listing: Listing, handover: SharedFolder
    ) -> list[dict[str, Any]]:
        """The failed parts with their sources. Raises CorpusError if they are more than allowed; they are done again
        by the next build, the others are not."""
        for one in failed:
            one["source"] = next(entry["name"] for entry in listing.sources if one["part"] in entry["parts"])
            self.say("failed: {source}, part {part}: {file}, {position}: {reason}".format(**one))
        if len(failed) > self.allow_failed:
            handover.remove(*(f"clean/{one['part']:05d}.json" for one in failed))
            table = "; ".join("{source}: {file}, {position}: {reason}".format(**one) for one in failed[:_SHOWN])
            more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
            raise CorpusError(
                f"{len(failed)} of {listing.num_parts} parts cannot be read: {table}{more}. Finished parts are kept: "
                "run the same command again when the files are whole, or leave the parts out by --allow-failed "
                f"{len(failed)}"
            )
        return failed

    def _short_of_tokens(self, listing: Listing, clean: CleanDocuments) -> list[str]:
        """A line for each source that has fewer tokens than are wanted of it."""
        lines = []
        for entry, counts in zip(listing.sources, clean.counts, strict=True):
            if (wanted := entry.get("spec", {}).get("tokens", 0)) > counts.get("tokens", 0) > 0:
                lines.append(f"{entry['name']}: {counts['tokens']:,} tokens, of {wanted:,.0f} wanted: it has no more")
                self.say(lines[-1])
        return lines

    def _pack(self, sets: Sequence[assembly.RowSet], tokenizer: Tokenizer, handover: SharedFolder) -> None:
        shards = [(row_set.name, window) for row_set in sets for window in range(row_set.num_shards)]
        packing = handover.shards_to_do(shards)
        handover.send(*(f"sets/{name}-{window:05d}.npy" for name, window in packing))
        shape = {"seq_len": self.config.seq_len, "pad_id": tokenizer.filler_id, "vocab_size": tokenizer.vocab_size}
        windows = [{"name": name, "window": window, **shape} for name, window in packing]
        self._parallel("pack", handover.runs(stages.pack_window), windows)
        handover.fetch(*(f"sets/{name}-{window:05d}.json" for name, window in shards))

    def _list(self, sources: list[Source], handover: SharedFolder) -> Listing:
        """Listing of the sources' files: that of an interrupted build if the files are unchanged, else a new one."""
        self._make_folders()  # an interrupted build may have run on another disk
        if handover.was_begun() and (listing := read_listing(self.work, sources)):
            self.say("an earlier build was cut off: going on with its finished parts")
            return listing
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        shutil.rmtree(self.folder / "rows", ignore_errors=True)
        self._make_folders()
        listing = write_listing(self.work, sources, self.config.part_mb * 1e6, self.config.seed)
        size = sum(entry["bytes"] for entry in listing.sources)
        free = shutil.disk_usage(self.folder).free
        if self.location.shared_folder and free < _DISK_PER_BYTE * size:
            shutil.rmtree(self.folder / _WORK, ignore_errors=True)
            raise CorpusError(
                f"{self.folder}: {free / 1e9:.1f} GB of disk are free, {size / 1e9:.1f} GB of files need about "
                f"{_DISK_PER_BYTE * size / 1e9:.1f} GB while they are prepared: choose another --out"
            )
        handover.begin()
        files = sum(len(source.files) for source in sources)
        self.say(f"{len(sources)} sources, {files:,} files, {size / 1e6:.1f} MB, {listing.num_parts} parts")
        return listing

    def _make_folders(self) -> None:
        for name in stages.FOLDERS:
            (self.work / name).mkdir(parents=True, exist_ok=True)

    def _sources(self) -> list[Source]:
        config = self.config
        if not (config.source or config.sources):
            return embedded_sources(int(config.embedded_mb * 1e6), config.code_to_text, config.seed)
        names = [spec.name for spec in config.specs()]
        if len(set(names)) < len(names):
            raise CorpusError(f"sources {', '.join(names)}: every source needs a name of its own")
        return [list_source(spec) for spec in config.specs()]

    def _parallel(self, label: str, step: Callable[..., None], tasks: Sequence[dict[str, Any]]) -> None:
        """Run ``step(**task)`` for every task on the workers and report progress every few seconds."""
        if not tasks:
            return

        def one(task: pa.Table) -> pa.Table:
            (arguments,) = task.to_pylist()
            step(**arguments)
            return pa.table({"done": [1]})

        began = reported = time.monotonic()
        tables = [pa.Table.from_pylist([task]) for task in tasks]
        for done, _ in enumerate(self.workers.map(tables, one), start=1):
            if time.monotonic() - reported > _SAY_EVERY_S:
                reported = time.monotonic()
                self.say(f"{label}: {done} of {len(tasks)} parts, {reported - began:.0f} s")
        self.say(f"{label}: {len(tasks)} parts in {time.monotonic() - began:.1f} s")
