"""Builds a corpus from its configuration: list, clean, deduplicate, tokenise, pack, commit.

A build may be killed at any moment: every step commits its output by a rename, the manifest comes last, and the same
command resumes the build and writes the same bytes. Knows the order of the steps; each is in its own file."""

import contextlib
import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from lemur_ray.config import DataConfig
from lemur_ray.corpus import assembly
from lemur_ray.corpus.build_inputs import benchmark_index, described, given_tokenizer, list_sources, read_extra_texts
from lemur_ray.corpus.build_report.progress import SourceProgress
from lemur_ray.corpus.build_report.statistics import STATISTICS, statistics
from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.comparison.scan_steps import compare_documents
from lemur_ray.corpus.config import CorpusConfig, build_hash
from lemur_ray.corpus.destinations.garbage import USED, remove_leftovers
from lemur_ray.corpus.destinations.locations import CorpusLocation, corpus_location
from lemur_ray.corpus.destinations.step_files import BUILDS, SharedFolder
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.selection import CleanDocuments, losses, select_documents, write_keep
from lemur_ray.corpus.sources.folders import Source
from lemur_ray.corpus.sources.listing import Listing, files_hash, read_listing, write_listing
from lemur_ray.corpus.sources.stage_keys import stage_key
from lemur_ray.corpus.steps import stages
from lemur_ray.corpus.steps.pack_shards import pack_window
from lemur_ray.host.file_lock import hold
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.text.tokenizer import Tokenizer

Say = Callable[[str], None]

_print: Say = partial(print, "[corpus]", flush=True)
_SAY_EVERY_S = 5.0
_SHOWN = 5
"""Number of failed parts that an error message names."""
_DISK_PER_BYTE = 3.0
"""Disk used while building per byte of listed files: cleaned text, tokens and rows."""


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
    be read to the end; the manifest lists them. ``overwrite``: replace a complete corpus, whatever its configuration.
    Raises CorpusError if there is such a corpus and ``overwrite`` is False, a source has no documents, more than
    ``allow_failed`` parts cannot be read, the folder cannot be written, or the disk is full; finished parts stay."""
    location = corpus_location(folder, config, workers, overwrite, say, allow_failed)
    work_folder, description, replaced = location.folder, None, None
    try:
        extra, given = [*read_extra_texts(config), *extra_texts], given_tokenizer(config)
        index = benchmark_index(config, benchmarks)
        replaced = location.committed()
        config, description = described(config, replaced, extra, given)
        description |= {"benchmarks": index.digest} if index else {}
        work_folder.mkdir(parents=True, exist_ok=True)
        with _exclusive(work_folder, say):
            sources = list_sources(config) if overwrite else []  # if that fails, the corpus there stays
            if manifest := location.reusable(description, overwrite, say):
                if location.shared_folder:  # the process that committed it may have been killed before that
                    remove_leftovers(location.store)
                return manifest
            replaced = location.committed()  # only a host that uploads leaves it there until then
            cluster = Workers(workers, location.shared_folder)
            if reason := cluster.fallback_reason:
                say(f"only this host works: {reason}; with --out and every --source in a bucket all hosts do")
            made = _Build(config, location, work_folder, description, cluster, allow_failed, index, say)
            return made.run(sources or list_sources(config), extra, given)
    except (ImportError, OSError) as error:  # a worker's host may lack the bucket's client
        if description and (manifest := location.made_meanwhile(description)) and manifest != replaced:
            say(f"{location.name} was made by another process meanwhile: used as it is")
            return manifest
        if is_full_disk(error):
            raise CorpusError(
                f"{work_folder}: the disk is full ({error}): free some, the same command goes on"
            ) from error
        where = "" if isinstance(error, ImportError) else f"{location.name} cannot be written, choose another --out: "
        raise CorpusError(f"{where}{error}") from error


@contextlib.contextmanager
def _exclusive(folder: Path, say: Say) -> Iterator[None]:
    """Wait for and hold the lock of a corpus folder; the kernel releases it when this process ends for any reason."""
    message = f"another process is building {folder}: waiting for it"
    with hold(folder / ".lock", wait_s=None, waiting=lambda: say(message)):
        yield


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
        return self.folder / BUILDS

    def run(self, sources: list[Source], extra: Sequence[str], given: Tokenizer | None) -> dict[str, Any]:
        """Execute all steps and commit the corpus; returns its manifest. given: tokenizer to use, None to train one."""
        state = hashlib.sha256("".join(files_hash(source) for source in sources).encode()).hexdigest()[:12]
        handover = self.location.handover(self.work, f"{build_hash(self.description)}-{state}")
        repaired = set()
        while True:
            try:
                return self._run(sources, handover, extra, given)
            except stages.DamagedOutput as error:
                if error.files in repaired:
                    raise CorpusError(f"{error} again: check the disk of {self.folder}") from error
                self.say(f"{error}: it is made again")
                handover.remove(*error.files)
                repaired.add(error.files)
            except assembly.MoreFilesNeeded as error:
                self.say(str(error))
                doubled = {source.name: replace(source, read_factor=2 * source.read_factor) for source in sources}
                sources = [doubled[one.name] if one.name in error.names else one for one in sources]
            except FileNotFoundError:
                handover.check()  # BuildGone if the whole build was removed
                raise

    def _run(
        self, sources: list[Source], handover: SharedFolder, extra: Sequence[str], given: Tokenizer | None
    ) -> dict[str, Any]:
        began = time.monotonic()
        work, config = self.work, self.config
        listing = self._list(sources, handover)
        parts = listing.parts
        to_do = handover.parts_to_do("clean", parts)
        progress, cleaning = SourceProgress(listing, to_do, self.say), [{"name": name} for name in to_do]
        self._parallel("read and filter", handover.runs(stages.clean_part), cleaning, progress.add)
        handover.fetch(*(f"clean/{name}{suffix}" for name in parts for suffix in (".json", ".ids", ".sizes")))
        failed = self._check_failed(stages.failed_parts(work, parts), listing, handover)
        drops, overlaps = compare_documents(work, parts, config, self.index, handover, self._parallel)
        clean, missing, empty = select_documents(work, listing, config, drops)
        for line in (*missing, *losses(listing, clean)):
            self.say(line)
        if empty:
            self._say_table(listing, empty)
            raise CorpusError("; ".join(f"source {name}: {reason}" for name, reason in empty.items()))
        sizes = clean.sizes[clean.keep]
        read = sum(count["read"] for count in clean.counts)
        self.say(f"kept {len(sizes):,} of {read:,} documents, {sizes.sum() / 1e6:.1f} MB")
        plan = assembly.plan_tokenizer(listing, clean, config, extra, given)
        tokenizer = self._tokenizer(plan, handover)
        tokens = self._tokenise(clean, parts, plan.key, handover)
        shape = {"seq_len": config.seq_len, "pad_id": tokenizer.filler_id, "vocab_size": tokenizer.vocab_size}
        sets = assembly.row_sets(work, listing, clean, tokens, config, shape)
        short = assembly.sources_short_of_tokens(listing, clean)
        for line in short:
            self.say(line)
        self._pack(sets, shape, handover)
        report = statistics(work, listing, clean, sets, handover)
        write_atomically(self.folder / STATISTICS, json.dumps(report).encode())
        manifest = assembly.manifest(work, listing, clean, sets, config, plan.key)
        manifest |= {"missing": missing + short, "build": build_hash(self.description), "config": self.description}
        manifest |= {"failed": failed} if failed else {}
        manifest |= {"benchmark_overlaps": overlaps} if overlaps else {}
        manifest = self._commit(manifest, listing, handover)
        self.say(f"committed {self.location.name} after {time.monotonic() - began:.0f} s")
        return manifest

    def _commit(self, manifest: dict[str, Any], listing: Listing, handover: SharedFolder) -> dict[str, Any]:
        used = {"build": manifest["build"], "outputs": {**handover.used, "parts": list(listing.parts)}}
        write_atomically(self.work / USED, json.dumps(used).encode(), durable=False)
        handover.send(USED)
        handover.check()
        manifest = self.location.commit(manifest)
        handover.remove(*(f"clean/{listing.parts[one['part']]}.json" for one in manifest.get("failed", ())))
        remove_leftovers(self.location.store)
        if self.location.shared_folder is None:
            shutil.rmtree(self.work, ignore_errors=True)
        return manifest

    def _tokenizer(self, plan: assembly.TokenizerPlan, handover: SharedFolder) -> Tokenizer:
        folder = f"{stages.TOKENIZER}/{plan.key}"
        (self.work / folder).mkdir(exist_ok=True)
        handover.use(stages.TOKENIZER, [plan.key])
        handover.fetch(f"{folder}/tokenizer.json")
        known = (self.work / folder / "tokenizer.json").is_file()
        if not known:
            handover.fetch(*(f"clean/{part}.parquet" for part, _ in plan.chosen))
        tokenizer = plan.make(self.work, self.config)
        origin = f"as in {self.config.tokenizer}" if plan.given else f"{len(plan.extra)} extra texts in its sample"
        self.say(f"tokenizer: {tokenizer.vocab_size} tokens, {origin}")
        handover.send(f"{folder}/")
        return tokenizer

    def _tokenise(
        self, clean: CleanDocuments, parts: Sequence[str], tokenizer: str, handover: SharedFolder
    ) -> list[str]:
        """Tokenise the selected documents of all parts; returns the keys of the outputs."""
        keep = write_keep(self.work, clean, len(parts))
        names = [stage_key("tokens", part, mask, tokenizer) for part, mask in zip(parts, keep, strict=True)]
        inputs = {name: {"clean": c, "keep": k} for name, c, k in zip(names, parts, keep, strict=True)}
        to_do = handover.parts_to_do("tokens", names)
        handover.send(*{f"keep/{inputs[name]['keep']}.npy" for name in to_do})
        handover.use("keep", keep)
        tasks = [{"name": name, **inputs[name], "tokenizer": tokenizer} for name in to_do]
        results = self._parallel("tokenise", handover.runs(stages.tokenise_part), tasks)
        for library, reason in sorted({(one["library"], one["reason"]) for one in results if one}):
            self.say(f"tokenised with {library}" + (f" ({reason})" if reason else ""))
        handover.fetch(*(f"tokens/{name}{suffix}" for name in inputs for suffix in (".json", ".lengths")))
        return names

    def _check_failed(
        self, failed: list[dict[str, Any]], listing: Listing, handover: SharedFolder
    ) -> list[dict[str, Any]]:
        """Return the failed parts with their sources. Raises CorpusError if more than ``allow_failed`` parts failed."""
        for one in failed:
            one["source"] = next(entry["name"] for entry in listing.sources if one["part"] in entry["parts"])
            self.say("failed: {source}, part {part}: {file}, {position}: {reason}".format(**one))
        if len(failed) > self.allow_failed:
            handover.remove(*(f"clean/{listing.parts[one['part']]}.json" for one in failed))
            counts = Counter(one["source"] for one in failed)
            self._say_table(listing, {name: f"{count} parts cannot be read" for name, count in counts.items()}, counts)
            table = "; ".join("{source}: {file}, {position}: {reason}".format(**one) for one in failed[:_SHOWN])
            more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
            raise CorpusError(
                f"{len(failed)} of {len(listing.parts)} parts cannot be read: {table}{more}. Finished parts are kept: "
                "run the same command again when the files are whole, or leave the parts out by --allow-failed "
                f"{len(failed)}"
            )
        return failed

    def _say_table(self, listing: Listing, wrong: Mapping[str, str], failed: Mapping[str, int] | None = None) -> None:
        """Report one line per source: how many of its parts are committed, and what is wrong with it."""
        width = max(len(entry["name"]) for entry in listing.sources)
        for entry in listing.sources:
            total = len(entry["parts"])
            done = total - (failed or {}).get(entry["name"], 0)
            state = wrong.get(entry["name"], "complete, not done again by the next build")
            self.say(f"{entry['name']:<{width}}  {done} of {total} parts: {state}")

    def _pack(self, sets: Sequence[assembly.RowSet], shape: dict[str, int], handover: SharedFolder) -> None:
        keys = {shard: key for row_set in sets for shard, key in row_set.shards.items()}
        packing = handover.shards_to_do(keys)
        handover.send(*(f"sets/{shard}.npz" for shard in packing))
        windows = [{"shard": shard, "key": keys[shard], **shape} for shard in packing]
        self._parallel("pack", handover.runs(pack_window), windows)
        handover.fetch(*(f"sets/{shard}.json" for shard in keys))
        for row_set in sets:
            records = [json.loads((self.work / "sets" / f"{shard}.json").read_text()) for shard in row_set.shards]
            most = 1 + max((record.get("most_pieces", 0) for record in records), default=0)  # padding is one more
            if most > (limit := DataConfig().max_documents):
                self.say(
                    f"rows of {row_set.name} have up to {most} documents, padding included; attention on GPU is "
                    f"compiled for {limit}: a run there needs --data.max-documents {most}"
                )

    def _list(self, sources: list[Source], handover: SharedFolder) -> Listing:
        """Listing of the sources' files: that of an interrupted build if the files and the versions of the stages are
        unchanged, else a new one, with which the build begins. handover: exchanges files with the workers. Raises
        CorpusError if a new build needs more disk than is free in the corpus folder."""
        for name in stages.FOLDERS:
            (self.work / name).mkdir(parents=True, exist_ok=True)
        if handover.was_begun() and (listing := read_listing(self.work, sources, handover.name)):
            self.say("an earlier build was cut off: going on with its finished parts")
            return listing
        part_bytes = self.config.part_mb * 1e6
        listing = write_listing(self.work, sources, part_bytes, self.config.seed, handover.name)
        to_do = set(handover.parts_to_do("clean", listing.parts))
        size = sum(entry["bytes"] for entry in listing.sources)
        new = sum(size for part, size in zip(listing.parts, listing.sizes, strict=True) if part in to_do)
        free = shutil.disk_usage(self.folder).free
        if self.location.shared_folder and free < _DISK_PER_BYTE * new:
            shutil.rmtree(self.work / handover.name, ignore_errors=True)
            raise CorpusError(
                f"{self.folder}: {free / 1e9:.1f} GB of disk are free, {new / 1e9:.1f} GB of files need about "
                f"{_DISK_PER_BYTE * new / 1e9:.1f} GB while they are prepared: choose another --out"
            )
        handover.begin()
        files = sum(len(source.files) for source in sources)
        self.say(f"{len(sources)} sources, {files:,} files, {size / 1e6:.1f} MB, {len(listing.parts)} parts")
        if len(to_do) < len(set(listing.parts)):
            self.say(f"{len(set(listing.parts)) - len(to_do)} parts are clean from an earlier build")
        return listing

    def _parallel(
        self,
        label: str,
        step: Callable[..., Any],
        tasks: Sequence[dict[str, Any]],
        done: Callable[[str, Any], None] | None = None,
    ) -> list[Any]:
        """Run ``step(**task)`` for every task on the workers, reporting progress; returns the results.
        done: function of a task's name and result that reports progress instead."""
        values: list[Any] = []
        if not tasks:
            return values

        def one(task: pa.Table) -> pa.Table:
            (arguments,) = task.to_pylist()
            return pa.table({"result": [json.dumps(step(**arguments))]})

        began = reported = time.monotonic()
        tables = [pa.Table.from_pylist([task]) for task in tasks]
        done_tables = self.workers.map(tables, one, stages.TASK_MEMORY)
        results = (result for table in done_tables for result in table.column("result").to_pylist())
        for number, result in enumerate(results):
            values.append(json.loads(result))
            if done:
                done(tasks[number]["name"], values[-1])
            elif time.monotonic() - reported > _SAY_EVERY_S:
                reported = time.monotonic()
                self.say(f"{label}: {number + 1} of {len(tasks)} parts, {reported - began:.0f} s")
        self.say(f"{label}: {len(tasks)} parts in {time.monotonic() - began:.1f} s")
        return values
