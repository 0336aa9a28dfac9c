"""Steps of a corpus build that run in one process: train the tokenizer, assign documents to shards, write the manifest.

They work on ids, sizes and counts of documents, and load texts only to train the tokenizer."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.documents import shuffled_order
from lemur_ray.corpus.packing import SHARD_BYTES, WINDOW, shard_ends, windows
from lemur_ray.corpus.rows import commit_row_set, token_dtype, write_atomically
from lemur_ray.corpus.selection import CleanDocuments
from lemur_ray.corpus.sources.listing import Listing
from lemur_ray.corpus.sources.stage_keys import array_hash, stage_key
from lemur_ray.corpus.steps import stages
from lemur_ray.corpus.steps.tokenise import train_tokenizer
from lemur_ray.text.bpe_training import GENERAL
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import tokenizer_in

HELDOUT = "heldout-"
"""Name prefix of the row set with the held-out documents of a source; the source's name follows."""
_SAMPLED_PARTS = 64
"""Maximum number of parts of one source from which the tokenizer's sample is drawn."""


@dataclass(frozen=True)
class TokenizerPlan:
    """The tokenizer of a build: ``given``, or one trained on ``chosen`` documents of cleaned parts and ``extra``."""

    key: str
    """Name of its folder below ``tokenizer/`` of the build folder."""
    chosen: tuple[tuple[str, np.ndarray], ...] = ()
    """(key of a cleaned part, mask (documents,) bool of the documents to train on)."""
    extra: tuple[str, ...] = ()
    given: Tokenizer | None = None

    def make(self, work: Path, config: CorpusConfig) -> Tokenizer:
        """Return the tokenizer and write its files to the build folder ``work``; trains it unless the folder has it."""
        folder = work / stages.TOKENIZER / self.key
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tokenizer.json"
        if self.given is not None:
            for name, text in self.given.to_files().items():
                write_atomically(folder / name, text.encode())
        elif not path.is_file():
            texts = [text for part, mask in self.chosen for text in stages.texts_of(work, part, mask)]
            share, pattern = config.tokenizer_extra_share, config.word_pattern or GENERAL
            tokenizer = train_tokenizer(texts, self.extra, share, config.vocab_size, pattern)
            write_atomically(path, tokenizer.to_json().encode())
        return tokenizer_in(folder)


def plan_tokenizer(
    listing: Listing, clean: CleanDocuments, config: CorpusConfig, extra: Sequence[str], given: Tokenizer | None
) -> TokenizerPlan:
    """The plan of a build's tokenizer: ``given``, or one to be trained on a seeded sample of the selected documents and
    the texts ``extra``. Trains nothing. The sample has the ratio of code to text of ``config``. listing, clean: parts
    of the build and their selected documents."""
    if given is not None:
        return TokenizerPlan(stage_key("tokenizer", given.to_files()), given=given)
    chosen = tuple(_sample(listing, clean, config))
    settings = [config.tokenizer_extra_share, config.vocab_size, config.word_pattern or GENERAL]
    key = stage_key("tokenizer", settings, list(extra), [[part, array_hash(mask)] for part, mask in chosen])
    return TokenizerPlan(key, chosen, tuple(extra))


def _sampled_parts(listing: Listing, config: CorpusConfig) -> list[list[int]]:
    """For each source, up to 64 random numbers of parts from which the tokenizer's training texts are drawn."""
    return [
        np.random.default_rng([config.seed, index]).permutation(entry["parts"])[:_SAMPLED_PARTS].tolist()
        for index, entry in enumerate(listing.sources)
    ]


def _sample(listing: Listing, clean: CleanDocuments, config: CorpusConfig) -> Iterator[tuple[str, np.ndarray]]:
    trained = clean.keep & ~clean.heldout
    size = np.array([clean.sizes[trained & (clean.source == i)].sum() for i in range(len(listing.sources))], float)
    kinds = [entry["kind"] for entry in listing.sources]
    ratio = {"code": config.code_to_text, "text": 1.0}
    of_kind = {kind: sum(s for s, k in zip(size, kinds, strict=True) if k == kind) for kind in set(kinds)}
    total = sum(ratio[kind] for kind in of_kind if of_kind[kind])
    for index, (entry, parts) in enumerate(zip(listing.sources, _sampled_parts(listing, config), strict=True)):
        if not size[index]:
            continue
        share = ratio[entry["kind"]] / total * size[index] / of_kind[entry["kind"]]
        at = np.flatnonzero(trained & np.isin(clean.part, parts))
        at = at[shuffled_order(clean.ids_at(at), config.seed, "tokenizer")]
        before = np.cumsum(clean.sizes[at]) - clean.sizes[at]
        chosen = np.zeros(len(clean.sizes), bool)
        chosen[at[before < share * config.tokenizer_sample_mb * 1e6]] = True
        for number in sorted(parts):
            mine = chosen[clean.of_part(number)]
            if mine.any():
                yield listing.parts[number], mine


@dataclass(frozen=True)
class RowSet:
    """A row set to be packed: name, kind (code or text), number of documents, bytes of text, keys of its shards."""

    name: str
    kind: str
    documents: int
    text_bytes: int
    keys: tuple[str, ...]

    @property
    def heldout(self) -> bool:
        """Whether this row set has held-out documents, which are not trained on."""
        return self.name.startswith(HELDOUT)

    @property
    def shards(self) -> dict[str, str]:
        """Name of each shard (the set's name and a number of five digits) -> key of its content."""
        return {f"{self.name}-{window:05d}": key for window, key in enumerate(self.keys)}


def row_sets(
    work: Path, listing: Listing, clean: CleanDocuments, tokens: Sequence[str], config: CorpusConfig, shape: Any
) -> list[RowSet]:
    """Row sets of all sources, then of their held-out documents; sets without documents are left out. Writes the list
    of documents of every shard to ``sets/`` of the build folder ``work``. tokens: keys of the tokenised parts. shape:
    {seq_len, pad_id, vocab_size} of the rows. listing, clean: sources with their parts, and the selected documents."""
    lengths = np.zeros(len(clean.sizes), np.int64)
    for number, name in enumerate(tokens):
        of_part = clean.of_part(number)
        lengths[of_part][clean.keep[of_part]] = stages.read_lengths(work, name)
    names = np.array(list(zip(tokens, listing.parts, strict=True)))
    members = [
        (entry["name"], entry["kind"], _within_tokens(index, entry, clean, lengths, config))
        for index, entry in enumerate(listing.sources)
    ]
    members += [
        (f"{HELDOUT}{entry['name']}", entry["kind"], clean.heldout & (clean.source == index))
        for index, entry in enumerate(listing.sources)
    ]
    sets = []
    for name, kind, member in members:
        at = np.flatnonzero(member)
        if not len(at):
            continue
        pieces = np.cumsum(-(-lengths[at] // config.seq_len))
        ends = [int(np.searchsorted(pieces, end)) + 1 for _, end in windows(int(pieces[-1]), WINDOW)]
        ends = sorted({*(min(end, len(at)) for end in ends), len(at)})
        sizes = (
            np.diff(np.cumsum(lengths[at])[np.array(ends) - 1], prepend=0) * token_dtype(shape["vocab_size"]).itemsize
        )
        keys = []
        for shard, (first, last) in enumerate(pairwise([0, *shard_ends(sizes, SHARD_BYTES)])):
            begin = ends[first - 1] if first else 0
            of_shard = np.array(ends[first:last]) - begin
            here = at[begin : ends[last - 1]]
            parts, local = np.unique(clean.part[here], return_inverse=True)
            table = np.stack([local, clean.place[here], lengths[here], clean.row[here]], axis=1)
            buffer = io.BytesIO()
            np.savez(buffer, documents=table, parts=names[parts], windows=of_shard)
            write_atomically(work / "sets" / f"{name}-{shard:05d}.npz", buffer.getvalue(), durable=False)
            several = [array_hash(of_shard)] if len(of_shard) > 1 else []
            keys.append(stage_key("pack", name, shard, names[parts].tolist(), array_hash(table), shape, *several))
        sets.append(RowSet(name, kind, len(at), int(clean.sizes[at].sum()), tuple(keys)))
    return sets


class MoreFilesNeeded(Exception):
    """Raised if only a sample of the files of the sources ``names`` was read, and has fewer tokens than wanted."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{', '.join(names)}: too few tokens are left of the files that were read: more are read")
        self.names = names


def sources_short_of_tokens(listing: Listing, clean: CleanDocuments) -> list[str]:
    """A message for each source that has some tokens, but fewer than wanted although all its files were read; [] if
    none has. listing, clean: sources with their parts, and the selected documents. Raises MoreFilesNeeded if such a
    source has files that were not read, because only a sample was."""
    lines, more = [], []
    for entry, counts in zip(listing.sources, clean.counts, strict=True):
        wanted, tokens = entry.get("spec", {}).get("tokens", 0), counts.get("tokens", 0)
        if wanted > tokens > 0 and entry.get("left_out"):
            more.append(entry["name"])
        elif wanted > tokens > 0:
            lines.append(f"{entry['name']}: {tokens:,} tokens, of {wanted:,.0f} wanted: it has no more")
    if more:
        raise MoreFilesNeeded(more)
    return lines


def _within_tokens(
    index: int, entry: dict[str, Any], clean: CleanDocuments, lengths: np.ndarray, config: CorpusConfig
) -> np.ndarray:
    """Mask (documents,) bool of a source's training documents: a seeded sample with the tokens wanted, or all of them.
    Counts the others as dropped by ``tokens``. lengths: (documents,) int64, tokens."""
    member = clean.keep & ~clean.heldout & (clean.source == index)
    wanted, at = entry.get("spec", {}).get("tokens", 0), np.flatnonzero(member)
    if not wanted:
        return member
    at = at[shuffled_order(clean.ids_at(at), config.seed, f"tokens of {entry['name']}")]
    total = np.cumsum(lengths[at])
    within = total - lengths[at] < wanted
    member[at[~within]] = False
    clean.counts[index]["tokens"] = int(total[within][-1]) if len(at) else 0
    if not within.all():
        clean.counts[index]["dropped"]["tokens"] = int((~within).sum())
    return member


def manifest(
    work: Path,
    listing: Listing,
    clean: CleanDocuments,
    sets: Sequence[RowSet],
    config: CorpusConfig,
    tokenizer_key: str,
) -> dict[str, Any]:
    """Write the tokenizer's files and the index of every row set to the corpus folder, the parent of ``work``; returns
    the manifest as JSON values, without version and build hash. tokenizer_key: folder of the tokenizer in the build
    folder. sets: row sets whose shards are complete. listing, clean: sources with their parts, and the selected
    documents."""
    folder = work / stages.TOKENIZER / tokenizer_key
    tokenizer = tokenizer_in(folder)
    for name in tokenizer.to_files():
        write_atomically(work.parent / name, (folder / name).read_bytes())
    entries = [_commit_set(work, row_set, config.seq_len, tokenizer.vocab_size) for row_set in sets]
    sources, heldout = (
        [entry for entry, row_set in zip(entries, sets, strict=True) if row_set.heldout is held]
        for held in (False, True)
    )
    return {
        "tokenizer": "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "seq_len": config.seq_len,
        "sources": sources,
        "heldout": [{**entry, "source": entry["name"].removeprefix(HELDOUT)} for entry in heldout],
        "fill": 0.0,  # replaced at the end; it stands here for the order of the file
        "counts": {
            entry["name"]: {
                "files": entry["files"],
                "read": total["read"],
                "kept": int((clean.keep & (clean.source == index)).sum()) - total["dropped"].get("tokens", 0),
                "dropped": dict(sorted(total["dropped"].items())),
                "masked": dict(sorted(total["masked"].items())),
            }
            for index, (entry, total) in enumerate(zip(listing.sources, clean.counts, strict=True))
        },
        "asked": {"code_to_text": config.code_to_text},
    } | mixture_built(sources, config.seq_len)


def mixture_built(sources: Sequence[Mapping[str, Any]], seq_len: int) -> dict[str, Any]:
    """Entries of a manifest computed from its sources: ``fill`` (share of the rows' tokens that is no padding) and
    ``built`` (tokens of code and text, and their ratio, None without text). sources: entries of the manifest; seq_len:
    tokens of a row. Raises ZeroDivisionError without rows."""
    tokens = {kind: sum(s["tokens"] for s in sources if s["kind"] == kind) for kind in ("code", "text")}
    return {
        "fill": round(sum(tokens.values()) / (sum(s["rows"] for s in sources) * seq_len), 6),
        "built": {
            "code_tokens": tokens["code"],
            "text_tokens": tokens["text"],
            "code_to_text": round(tokens["code"] / tokens["text"], 4) if tokens["text"] else None,
        },
    }


def _commit_set(work: Path, row_set: RowSet, seq_len: int, vocab_size: int) -> dict[str, Any]:
    """Write the index of a row set from the entries of its shards; returns its entry in the manifest."""
    shards = [json.loads((work / "sets" / f"{shard}.json").read_bytes())["shard"] for shard in row_set.shards]
    folder = stages.rows_of(work, row_set.name)
    folder.mkdir(parents=True, exist_ok=True)
    shape = {"seq_len": seq_len, "vocab_size": vocab_size}
    rows = commit_row_set(folder, shards, documents=row_set.documents, text_bytes=row_set.text_bytes, **shape)
    return {
        "name": row_set.name,
        "kind": row_set.kind,
        "folder": f"rows/{row_set.name}",
        **{name: rows[name] for name in ("rows", "tokens", "documents", "text_bytes")},
        "fill": round(rows["tokens"] / (rows["rows"] * seq_len), 6),
    }
