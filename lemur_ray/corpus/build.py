"""A corpus from its configuration: list, clean, deduplicate, tokenise, pack, commit.

Restartable at any moment: every step commits its output by a rename, the manifest comes last, and the same command
goes on where it was cut off and gives the same bytes. Knows the order of the steps; each is in its own file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lemur_ray.corpus import assembly, stages
from lemur_ray.corpus.bucket_build import BucketCorpus, all_in_buckets
from lemur_ray.corpus.config import DEFAULT_OLD_PATTERN, CorpusConfig, WordPattern, build_hash, describe
from lemur_ray.corpus.manifest import (
    MANIFEST,
    CorpusError,
    is_complete,
    local_folder,
    matches_build,
    read_manifest,
    row_folder,
    write_manifest,
)
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.rows import RowReader, RowSetError
from lemur_ray.corpus.selection import select_documents
from lemur_ray.corpus.sources.embedded import embedded_sources
from lemur_ray.corpus.sources.folders import Source, folder_source
from lemur_ray.corpus.sources.listing import Listing, read_listing, write_listing
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.corpus.step_files import SharedFolder, remove_build_files
from lemur_ray.host.file_lock import hold
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.host.home import resolve_out
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.published_folder import check_writable, publish, work_folder
from lemur_ray.text.bpe_training import GENERAL
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_path

Say = Callable[[str], None]

_WORK = ".build"
_SAY_EVERY_S = 5.0
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
    workers: int | None = None,
    say: Say = _print,
) -> dict[str, Any]:
    """Build the corpus in ``folder`` unless it is there already; returns its manifest.

    ``extra_texts`` join those of ``config.tokenizer_extra`` in the tokenizer's sample. ``workers``: tasks at once on
    the cluster that ``ray.init`` has joined (default: as many as it has cores), or 0 to do everything in this process
    without Ray; the rows do not depend on it. ``overwrite``: a complete corpus of another configuration is replaced.
    Raises CorpusError where there is one and it may not be, a source has no documents, the folder cannot be written,
    or the disk is full.
    """
    bucket = BucketCorpus(str(folder).rstrip("/")) if is_bucket(str(folder)) else None
    if bucket and not (workers != 0 and all_in_buckets(config)):
        return _published(config, bucket, overwrite, extra_texts=extra_texts, workers=workers, say=say)
    folder = work_folder(bucket.url) if bucket else local_folder(folder).absolute()
    where = Workers(workers, None if bucket else folder)
    if where.alone:
        say(f"only this host works: {where.alone}; with --out and every --source in a bucket all hosts do")
    extra, given = [*_extra_texts(config), *extra_texts], _given_tokenizer(config)
    config, description = _described(config, bucket.there() if bucket else _here(folder), extra, given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder, say):
            if bucket and (there := bucket.reusable(description, overwrite, say)):
                shutil.rmtree(folder / _WORK, ignore_errors=True)
                return there
            if not bucket and _reusable(folder, description, overwrite, say):
                return read_manifest(folder)
            building = _Build(config, folder, description, where, say, bucket)
            try:
                return building.run(extra, given)
            except CorpusError:  # about the input: what was made of it must not outlive its correction
                shutil.rmtree(folder / _WORK, ignore_errors=True)
                raise
    except (ImportError, OSError) as error:  # of another host, that has no client of the bucket, too
        if bucket and (there := bucket.made_meanwhile(description)):
            say(f"{bucket.url} was made by another process meanwhile: used as it is")
            return there
        if is_full_disk(error):
            raise CorpusError(f"{folder}: the disk is full ({error}): free some, the same command goes on") from error
        where_to = bucket.url if bucket else folder
        raise CorpusError(f"{where_to} cannot be written ({error}): choose another --out") from error


def _described(
    config: CorpusConfig, there: dict[str, Any] | None, extra: Sequence[str], given: Tokenizer | None
) -> tuple[CorpusConfig, dict[str, Any]]:
    """The configuration with its word pattern settled, and what names the build. ``there``: of what is there."""
    if not config.word_pattern:
        config = dataclasses.replace(config, word_pattern=_word_pattern(there))
    description = describe(config)
    if given is None:
        del description["tokenizer"]
    else:
        description.pop("word_pattern", None)
        description["tokenizer"] = hashlib.sha256("\0".join(given.to_files().values()).encode()).hexdigest()[:16]
    return config, {**description, "extra": hashlib.sha256("\0".join(extra).encode()).hexdigest()[:16]}


def _published(
    config: CorpusConfig,
    bucket: BucketCorpus,
    overwrite: bool,
    *,
    extra_texts: Sequence[str],
    workers: int | None,
    say: Say,
) -> dict[str, Any]:
    """Build on this host's disk, then copy to a bucket; what is there is looked at first. Raises as ``build``."""
    url = bucket.url
    try:
        extra = [*_extra_texts(config), *extra_texts]
        config, description = _described(config, bucket.there(), extra, _given_tokenizer(config))
        if (found := bucket.found(description, overwrite, say)[0]) is not None:
            return found
        check_writable(url)
        manifest = build(config, work_folder(url), True, extra_texts=extra_texts, workers=workers, say=say)
        if (found := bucket.found(description, overwrite, say)[0]) is not None:
            return found  # made by another host meanwhile
        bucket.claim(manifest["build"], overwrite)
        publish(work_folder(url), url, last=MANIFEST)
        remove_build_files(url)
    except (ImportError, OSError) as error:
        raise CorpusError(f"{url} cannot be written: {error}") from error
    return manifest


@contextlib.contextmanager
def _alone(folder: Path, say: Say) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when this process ends, however it ends."""
    told = f"another process is building {folder}: waiting for it"
    with hold(folder / ".lock", wait_s=None, waiting=lambda: say(told)):
        yield


def _reusable(folder: Path, description: dict[str, Any], overwrite: bool, say: Say) -> bool:
    """Whether the folder holds this very corpus. A different one is uncommitted if it may be, else CorpusError."""
    if not is_complete(folder):
        return False
    try:
        manifest = read_manifest(folder)
    except CorpusError as error:
        if not overwrite:
            raise
        say(f"{error}: it is replaced")
        (folder / MANIFEST).unlink()
        return False
    try:
        for source in manifest["sources"]:
            RowReader(row_folder(folder, source["name"])).verify()
    except RowSetError as error:
        say(f"{folder} is damaged ({error}): it is built again")
        (folder / MANIFEST).unlink()
        return False
    if matches_build(folder, manifest, description, overwrite, say):
        shutil.rmtree(folder / _WORK, ignore_errors=True)
        return True
    (folder / MANIFEST).unlink()
    return False


def _here(folder: Path) -> dict[str, Any] | None:
    try:
        return read_manifest(folder)
    except CorpusError:
        return None


def _word_pattern(manifest: dict[str, Any] | None) -> WordPattern:
    """Of the corpus that is there, so that the command that built it still finds it; of a new one the general."""
    pattern = (
        (manifest or {"config": {"word_pattern": GENERAL}}).get("config", {}).get("word_pattern", DEFAULT_OLD_PATTERN)
    )
    return GENERAL if pattern == GENERAL else DEFAULT_OLD_PATTERN


def _extra_texts(config: CorpusConfig) -> list[str]:
    """Texts of ``tokenizer_extra`` files. Raises CorpusError where a file gives none."""
    texts = []
    for path in config.tokenizer_extra:
        source = folder_source(f"tokenizer-extra:text:{path}")
        found = [item.text for ref in source.files for item in read_texts(ref) if item.rule is None]
        if not found:
            raise CorpusError(f"tokenizer_extra {path}: no text in it; expected {source.looked_for}")
        texts += found
    return texts


def _given_tokenizer(config: CorpusConfig) -> Tokenizer | None:
    """The tokenizer that the configuration names. Raises CorpusError where its file is missing or damaged."""
    if not config.tokenizer:
        return None
    try:
        return load_path(resolve_out(config.tokenizer, ""))
    except (ImportError, OSError, ValueError) as error:
        raise CorpusError(f"--tokenizer: {error}") from error


@dataclass(frozen=True)
class _Build:
    """One build under way."""

    config: CorpusConfig
    folder: Path
    description: dict[str, Any]
    workers: Workers
    say: Say
    bucket: BucketCorpus | None = None
    """Where the corpus goes, and how those who make it hand each other files; None: all see ``folder``."""

    @property
    def work(self) -> Path:
        return self.folder / _WORK / build_hash(self.description)

    def run(self, extra: Sequence[str], given: Tokenizer | None) -> dict[str, Any]:
        sources = self._sources()
        hand = SharedFolder(self.work) if self.bucket is None else self.bucket.handover(self.work, sources)
        try:
            return self._run(sources, hand, extra, given)
        except FileNotFoundError:
            hand.check()  # it went with the whole build
            raise

    def _run(
        self, sources: list[Source], hand: SharedFolder, extra: Sequence[str], given: Tokenizer | None
    ) -> dict[str, Any]:
        began = time.monotonic()
        work, config = self.work, self.config
        listing = self._list(sources, hand)
        parts = range(listing.num_parts)
        cleaning = [{"number": n} for n in hand.parts_to_do("clean", parts)]
        self._parallel("read and filter", hand.runs(stages.clean_part), cleaning)
        hand.bring(*(f"clean/{n:05d}{suffix}" for n in parts for suffix in (".json", ".ids", ".sizes")))
        clean, missing = select_documents(work, listing, config)
        for line in missing:
            self.say(line)
        kept = clean.sizes[clean.keep]
        self.say(f"kept {len(kept):,} of {sum(c['read'] for c in clean.counts):,} documents, {kept.sum() / 1e6:.1f} MB")
        if given is None:
            sampled = assembly.sampled_parts(listing, config)
            hand.bring(*(f"clean/{number:05d}.parquet" for numbers in sampled for number in numbers))
        tokenizer = assembly.make_tokenizer(work, listing, clean, config, extra, given)
        origin = f"as in {config.tokenizer}" if given else f"{len(extra)} extra texts in its sample"
        self.say(f"tokenizer: {tokenizer.vocab_size} tokens, {origin}")
        hand.give("keep/", f"{stages.TOKENIZER}/")
        tokenising = [{"number": n} for n in hand.parts_to_do("tokens", parts)]
        self._parallel("tokenise", hand.runs(stages.tokenise_part), tokenising)
        hand.bring(*(f"tokens/{n:05d}.lengths" for n in parts))
        sets = assembly.row_sets(work, listing, clean, config)
        shards = [(row_set.name, window) for row_set in sets for window in range(row_set.num_shards)]
        packing = hand.shards_to_do(shards)
        hand.give(*(f"sets/{name}-{window:05d}.npy" for name, window in packing))
        shape = {"seq_len": config.seq_len, "pad_id": tokenizer.filler_id, "vocab_size": tokenizer.vocab_size}
        windows = [{"name": name, "window": window, **shape} for name, window in packing]
        self._parallel("pack", hand.runs(stages.pack_window), windows)
        hand.bring(*(f"sets/{name}-{window:05d}.json" for name, window in shards))
        manifest = assembly.manifest(self.folder, work, listing, clean, sets, config)
        manifest |= {"missing": missing, "build": build_hash(self.description), "config": self.description}
        if self.bucket is None:
            write_manifest(self.folder, manifest)
            manifest = read_manifest(self.folder)
        else:
            hand.check()
            manifest = self.bucket.commit(self.folder, manifest)
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        self.say(f"committed {self.bucket.url if self.bucket else self.folder} after {time.monotonic() - began:.0f} s")
        return manifest

    def _list(self, sources: list[Source], hand: SharedFolder) -> Listing:
        """Files of every source: those of the build that was cut off where they are the same now, else anew."""
        self._make_folders()  # on another disk than the build that was cut off there are none
        if hand.was_begun() and (listing := read_listing(self.work, sources)):
            self.say("an earlier build was cut off: going on with its finished parts")
            return listing
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        shutil.rmtree(self.folder / "rows", ignore_errors=True)
        self._make_folders()
        size = sum(ref.size for source in sources for ref in source.files)
        free = shutil.disk_usage(self.folder).free
        if self.bucket is None and free < _DISK_PER_BYTE * size:
            raise CorpusError(
                f"{self.folder}: {free / 1e9:.1f} GB of disk are free, {size / 1e9:.1f} GB of files need about "
                f"{_DISK_PER_BYTE * size / 1e9:.1f} GB while they are prepared: choose another --out"
            )
        listing = write_listing(self.work, sources, self.config.part_mb * 1e6)
        hand.begin()
        files = sum(len(source.files) for source in sources)
        self.say(f"{len(sources)} sources, {files:,} files, {size / 1e6:.1f} MB, {listing.num_parts} parts")
        return listing

    def _make_folders(self) -> None:
        for name in stages.FOLDERS:
            (self.work / name).mkdir(parents=True, exist_ok=True)

    def _sources(self) -> list[Source]:
        config = self.config
        if not config.source:
            return embedded_sources(int(config.embedded_mb * 1e6), config.code_to_text, config.seed)
        sources = [folder_source(spec) for spec in config.source]
        names = [source.name for source in sources]
        if len(set(names)) < len(names):
            raise CorpusError(f"sources {', '.join(names)}: every source needs a name of its own")
        return sources

    def _parallel(self, label: str, step: Callable[..., None], tasks: Sequence[dict[str, Any]]) -> None:
        """Run a step once per task, wherever the workers are, and say from time to time how far it is."""
        if not tasks:
            return

        def one(task: pa.Table) -> pa.Table:
            (arguments,) = task.to_pylist()
            step(**arguments)
            return pa.table({"done": [1]})

        began = said = time.monotonic()
        tables = [pa.Table.from_pylist([task]) for task in tasks]
        for done, _ in enumerate(self.workers.map(tables, one), start=1):
            if time.monotonic() - said > _SAY_EVERY_S:
                said = time.monotonic()
                self.say(f"{label}: {done} of {len(tasks)} parts, {said - began:.0f} s")
        self.say(f"{label}: {len(tasks)} parts in {time.monotonic() - began:.1f} s")
