"""Removes documents from a corpus by id, origin or licence: writes a new version of the corpus in another folder.

Only shards with a removed document are written again; the files of all others are linked, or copied within a bucket.
The old version stays unchanged, so that runs on it can be resumed, until the user deletes it."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import yaml

from lemur_ray.corpus.assembly import mixture_built
from lemur_ray.corpus.build_report.statistics import STATISTICS, add_totals
from lemur_ray.corpus.config import build_hash
from lemur_ray.corpus.destinations.garbage import remove_leftovers
from lemur_ray.corpus.manifest import MANIFEST, CorpusError, manifest_bytes, read_manifest
from lemur_ray.corpus.packing import WINDOW, best_fit
from lemur_ray.corpus.provenance.lookup import read_documents, read_pieces, read_row_index
from lemur_ray.corpus.rows import commit_row_set, write_atomically, write_shard
from lemur_ray.corpus.steps.stages import parquet_bytes, totals
from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.storage.published_folder import scratch_folder
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import tokenizer_in

Say = Callable[[str], None]


@dataclass(frozen=True)
class Removal:
    """Documents to remove from a corpus: those with one of these ids (hex), origins (``*`` allowed) or licences."""

    ids: frozenset[str] = frozenset()
    """32 hex digits each, in either case."""
    origins: frozenset[str] = frozenset()
    """Equal to the origin, the file, or FILE:NUMBER of a document; ``*`` stands for any characters."""
    licences: frozenset[str] = frozenset()
    """Equal to one of the licences of a document, in either case."""

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a YAML or JSON file (path or URL), a mapping of ids, origins and licences to lists. Raises CorpusError
        if it cannot be read or has another form."""
        fields = [field.name for field in dataclasses.fields(cls)]
        try:
            fs, inner = file_system(path)
            value = yaml.safe_load(fs.cat_file(inner))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise CorpusError(f"--remove {path}: {error}") from error
        listed = isinstance(value, dict) and value and all(isinstance(one, list) for one in value.values())
        if not listed or set(value) - set(fields):
            raise CorpusError(f"--remove {path}: expected a mapping of some of {', '.join(fields)} to lists")
        return cls(**{name: frozenset(map(str, ones)) for name, ones in value.items()})

    @property
    def digest(self) -> str:
        """Hash of the list of documents to remove; their names are not stored in the corpus."""
        value = {name: sorted(ones) for name, ones in vars(self).items()}
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]

    def mask(self, documents: pa.Table, unmatched: set[str] | None = None) -> np.ndarray:
        """(documents,) bool: which documents of a shard are removed.
        unmatched: set from which the ids, origins and licences that match a document are removed."""
        columns = [documents.column(name).to_pylist() for name in ("id", "licence", "origin", "path")]
        ids, licences = ({one.casefold(): one for one in ones} for ones in (self.ids, self.licences))
        patterns = {
            one: re.compile(re.escape(one).replace(r"\*", ".*"), re.DOTALL) for one in self.origins if "*" in one
        }
        mask = np.zeros(len(documents), bool)
        for at, (id, licence, origin, path) in enumerate(zip(*columns, strict=True)):
            names = {origin, path, re.sub(r":\d+$", "", path)}
            hits = {licences.get(one.strip().casefold()) for one in licence.split(",")} | {ids.get(id)}
            hits |= names & self.origins
            hits |= {one for one, pattern in patterns.items() if any(map(pattern.fullmatch, names))}
            hits.discard(None)
            mask[at] = bool(hits)
            if unmatched:
                unmatched -= hits
        return mask


def remove_documents(
    corpus: str | Path, out: str | Path, removal: Removal, say: Say = print, unmatched: set[str] | None = None
) -> dict[str, Any]:
    """Write the corpus without the documents of ``removal`` to ``out``; returns its manifest. ``corpus`` stays as it
    is. Both are folders, or URLs of buckets. A killed removal is begun again by the same command, with the same bytes.
    unmatched: set to which the ids, origins and licences that match no document are added; each is reported by ``say``.
    Raises CorpusError if ``out`` holds a corpus, no document is removed, or none is left; OSError."""
    manifest, tokenizer = read_manifest(corpus), tokenizer_in(corpus)
    fs, root = file_system(str(out))
    if is_bucket(str(corpus)) != is_bucket(str(out)):
        raise CorpusError(f"{corpus} and {out}: expected two folders, or two addresses in buckets")
    if fs.exists(f"{root}/{MANIFEST}"):
        raise CorpusError(f"{out} holds a corpus: choose another --out")
    total: Counter[str] = Counter()
    by_shard: list[dict[str, Any]] = []
    unmatched = set() if unmatched is None else unmatched
    unmatched |= removal.ids | removal.origins | removal.licences
    for kind in ("sources", "heldout"):
        for entry in manifest[kind]:
            left, done = _without(str(corpus), str(out), entry, tokenizer, removal, unmatched)
            by_shard += left if kind == "sources" else []
            total += done
            if done["removed"]:
                counts = manifest["counts"][entry.get("source", entry["name"])]
                counts["kept"] -= done["removed"]
                counts["dropped"] = Counter(counts["dropped"]) + Counter(removed=done["removed"])
        manifest[kind] = [entry for entry in manifest[kind] if entry["rows"]]
    for one in sorted(unmatched):
        say(f"no document has the id, origin or licence {one}")
    if not total["removed"]:
        raise CorpusError(f"{corpus} has no document with one of these ids, origins or licences: it stays as it is")
    if not manifest["sources"]:
        raise CorpusError(f"no document of {corpus} would be left")
    manifest |= mixture_built(manifest["sources"], manifest["seq_len"])
    manifest["config"]["removed"] = [*manifest["config"].get("removed", ()), removal.digest]
    manifest |= {"build": build_hash(manifest["config"]), "removed": manifest.get("removed", 0) + total["removed"]}
    for name in tokenizer.to_files():
        _transfer(f"{corpus}/{name}", f"{out}/{name}")
    with contextlib.suppress(FileNotFoundError):  # of an earlier corpus there
        fs.rm_file(f"{root}/corpus.html")
    about = {f"{column}s": add_totals([one[column] for one in by_shard]) for column in ("language", "licence")}
    fs.pipe_file(f"{root}/{STATISTICS}", json.dumps({**about, "examples": {}}).encode())  # they may hold removed texts
    if is_bucket(str(out)):
        fs.pipe_file(f"{root}/{MANIFEST}", manifest_bytes(out, manifest))
    else:
        write_atomically(Path(root) / MANIFEST, manifest_bytes(out, manifest))
    remove_leftovers(out)
    say(
        "{removed:,} documents removed; {rewritten} of {shards} shards written again".format(
            **Counter(rewritten=0) | total
        )
    )
    return read_manifest(out)


def _without(
    corpus: str, out: str, entry: dict[str, Any], tokenizer: Tokenizer, removal: Removal, unmatched: set[str]
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Write a row set without the removed documents and update its entry in the manifest; (documents and tokens of each
    shard by language and licence, counts of documents removed, shards, and shards rewritten).
    Raises CorpusError, OSError."""
    name, index = entry["name"], read_row_index(corpus, entry["name"])
    there, to = f"{corpus}/rows/{name}", f"{out}/rows/{name}"
    shards, left, counts = [], [], Counter(shards=len(index["shards"]))
    with scratch_folder() as scratch:
        here = scratch if is_bucket(out) else Path(to)
        here.mkdir(parents=True, exist_ok=True)
        for shard in index["shards"]:
            documents = read_documents(there, shard)
            mask = removal.mask(documents, unmatched)
            stay = documents.filter(pa.array(~mask))
            left.append({column: totals(stay, column) for column in ("language", "licence")})
            if not mask.any():
                shards.append(shard)
                for kind in shard["files"]:
                    _transfer(f"{there}/{shard['name']}.{kind}", f"{to}/{shard['name']}.{kind}")
                continue
            counts += Counter(removed=int(mask.sum()), rewritten=1)
            entry["documents"] -= int(mask.sum())
            entry["text_bytes"] -= int(np.array(documents.column("bytes"))[mask].sum())
            if not mask.all():
                shards.append(_rewrite(there, shard, documents, mask, index, here, tokenizer.filler_id))
        shape = {"seq_len": index["seq_len"], "vocab_size": tokenizer.vocab_size}
        rows = commit_row_set(here, shards, documents=entry["documents"], text_bytes=entry["text_bytes"], **shape)
        for path in sorted(scratch.iterdir()):
            fs, root = file_system(to)
            fs.put_file(str(path), f"{root}/{path.name}")
    entry |= {"rows": rows["rows"], "tokens": rows["tokens"]}
    entry["fill"] = round(rows["tokens"] / max(rows["rows"] * index["seq_len"], 1), 6)
    return left, counts


def _rewrite(
    there: str,
    shard: dict[str, Any],
    documents: pa.Table,
    mask: np.ndarray,
    index: dict[str, Any],
    to: Path,
    pad_id: int,
) -> dict[str, Any]:
    """Write a shard with the pieces of the documents that stay, packed into rows again; returns its entry.
    As many rows as ``packing.WINDOW`` pieces fill are in memory at a time."""
    arrays, width = read_pieces(there, shard), index["seq_len"] * np.dtype(index["dtype"]).itemsize
    fs, path = file_system(f"{there}/{shard['name']}.tokens")
    starts, numbers, lengths = arrays["starts"], arrays["numbers"], arrays["lengths"].astype(np.int64)
    goals = np.arange(WINDOW, len(lengths), WINDOW)
    ends = np.unique([*np.searchsorted(starts, goals, side="right").tolist(), len(starts) - 1])
    blocks = []
    for begin, end in pairwise([0, *ends.tolist()]):
        first, last = starts[begin], starts[end]
        stays = np.flatnonzero(~mask[numbers[first:last]])
        if len(stays):
            row, num_rows = best_fit(lengths[first:last][stays], index["seq_len"])
            order = np.lexsort((np.arange(len(stays)), -lengths[first:last][stays], row))
            blocks.append((begin, end, first + stays[order], row[order], num_rows))

    def tokens() -> Iterator[np.ndarray]:
        for begin, end, pieces, row, num_rows in blocks:
            data = np.frombuffer(fs.cat_file(path, start=begin * width, end=end * width), np.dtype(index["dtype"]))
            yield _moved(data.reshape(end - begin, -1), starts[begin : end + 1], lengths, pieces, row, num_rows, pad_id)

    renumbered = np.cumsum(~mask) - 1
    pieces = np.concatenate([block[2] for block in blocks])
    provenance = renumbered[numbers[pieces]], parquet_bytes(documents.filter(pa.array(~mask)))
    per_row = np.concatenate([np.bincount(row, minlength=num_rows) for _, _, _, row, num_rows in blocks])
    return write_shard(to, shard["name"], tokens(), lengths[pieces], per_row, provenance=provenance)


def _moved(
    old: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    pieces: np.ndarray,
    row: np.ndarray,
    num_rows: int,
    pad_id: int,
) -> np.ndarray:
    """Rows (num_rows, seq_len) with some pieces of the rows ``old``.
    starts: number of the first piece of each old row. lengths: tokens of all pieces. pieces, row: numbers of the pieces
    in the order in which they are written, and the new row of each."""
    out = np.full((num_rows, old.shape[1]), pad_id, old.dtype)
    used = np.zeros(num_rows, np.int64)
    old_row = np.searchsorted(starts, pieces, side="right") - 1
    total = np.concatenate([[0], np.cumsum(lengths[starts[0] : starts[-1]])])
    begin = total[pieces - starts[0]] - total[starts[old_row] - starts[0]]
    for piece, source, first, target in zip(
        pieces.tolist(), old_row.tolist(), begin.tolist(), row.tolist(), strict=True
    ):
        length = lengths[piece]
        out[target, used[target] : used[target] + length] = old[source, first : first + length]
        used[target] += length
    return out


def _transfer(path: str, to: str) -> None:
    """Link or copy the file ``path`` to ``to``: if possible a hard link, in a bucket a copy by its service."""
    (fs, inner), (there, target) = file_system(path), file_system(to)
    if is_bucket(path):
        if type(fs) is type(there):
            fs.cp_file(inner, target)
            return
        with fs.open(inner, "rb") as source, there.open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 24)
        return
    Path(to).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(to)
    try:
        os.link(path, to)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(path, to)
