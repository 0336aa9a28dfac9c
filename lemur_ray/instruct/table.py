"""Instruction tables: a corpus folder with one row set, ``chat``, and a flag per token whether it is trained.

The trainer reads a table like any corpus. Data sets are packed together, so that a small one does not come as a sudden
change of distribution. Only the assistant's tokens are trained; a conversation longer than a row is cut on the right,
and dropped and counted if no trained token is left. A table is named by its content and never rewritten."""

import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.manifest import MANIFEST, CorpusError, is_current, read_manifest, row_folder, write_manifest
from lemur_ray.corpus.packing import pack
from lemur_ray.corpus.rows import RowWriter
from lemur_ray.instruct.config import Packing
from lemur_ray.instruct.conversation import Conversation, fault
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.published_folder import publish, work_folder
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.chat_template import TemplateError, TemplateUnusable
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import save_folder

SOURCE = "chat"
"""Name of the only source of an instruction table."""
REFUSED = "refused_by_the_chat_template"
"""Drop reason for a conversation that the model's template rejects, for example because of unknown roles."""
Counts = dict[str, Counter[str]]
"""Data set -> number of its conversations that were read, kept, and dropped or cut for a reason."""
NumRows = Callable[[int, int], int]
"""Function of (packed rows, conversations) that returns the rows of the table; added ones have no trained token."""


@dataclass(frozen=True)
class Example:
    """One conversation as token ids, with a flag per token whether it is trained."""

    dataset: str
    id: str
    messages: str
    """The turns as JSON; empty if the table does not store text."""
    tokens: np.ndarray
    """(tokens,) int32, at most ``seq_len``."""
    trained: np.ndarray
    """(tokens,) bool: whether the token is trained."""


def build_table(
    conversations: Iterable[Conversation],
    tokenizer: Tokenizer,
    shelf: str | Path,
    *,
    seq_len: int,
    num_rows: NumRows | None = None,
) -> tuple[Path | str, dict[str, Any]]:
    """Encode ``conversations`` and write their instruction table; returns (its folder, manifest).
    The folder lies in ``shelf``, a path or URL, and is named by content: the same conversations in the same order give
    the same table, which is written once. num_rows: rule for the total number of rows. seq_len: tokens of a row. Raises
    CorpusError if no conversation is left, TemplateUnusable if the chat template is invalid."""
    counts: Counts = {}
    examples = list(encoded(conversations, tokenizer, seq_len, counts))
    return write_table(examples, tokenizer, shelf, seq_len=seq_len, num_rows=num_rows, report=_report(counts))


def check_any_left(
    conversations: Iterable[Conversation], tokenizer: Tokenizer, shelf: str | Path, *, seq_len: int
) -> None:
    """Raise what ``build_table`` would raise: CorpusError if no conversation is left, TemplateUnusable if the chat
    template is invalid. Encodes them up to the first that is left. shelf, seq_len: of that table."""
    counts: Counts = {}
    if next(encoded(conversations, tokenizer, seq_len, counts), None) is None:
        raise _nothing_left(shelf, _report(counts))


def encoded(
    conversations: Iterable[Conversation], tokenizer: Tokenizer, seq_len: int, counts: Counts
) -> Iterator[Example]:
    """Yield every conversation that has a trained token, cut to ``seq_len`` tokens. Adds to ``counts``, by data set:
    read and kept conversations, those dropped or cut by reason. Raises TemplateUnusable if the template is invalid for
    every conversation."""
    for conversation in conversations:
        name = conversation.dataset
        count = counts.setdefault(name, Counter(read=0, kept=0))
        count["read"] += 1
        if reason := fault(conversation):
            count[reason] += 1
            continue
        try:
            ids, trained = encode_chat(tokenizer, conversation.messages, tools=conversation.tools)
        except TemplateUnusable:
            raise
        except TemplateError:
            count[REFUSED] += 1
            continue
        if len(ids) > seq_len:
            count["cut_at_row_length"] += 1
        marks = np.array(trained[:seq_len], bool)
        if not marks.any():
            count["no_trained_token"] += 1
            continue
        count["kept"] += 1
        yield Example(name, conversation.id, "", np.array(ids[:seq_len], np.int32), marks)


def _report(counts: Counts) -> dict[str, Any]:
    return {"counts": {name: dict(counts[name]) for name in sorted(counts)}}


def _nothing_left(shelf: str | Path, report: Mapping[str, Any]) -> CorpusError:
    return CorpusError(f"no conversation left for {shelf}: {json.dumps(report['counts'])}")


def write_table(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    shelf: str | Path,
    *,
    seq_len: int,
    packing: Packing = "best_fit",
    seed: int | None = None,
    num_rows: NumRows | None = None,
    report: dict[str, Any],
) -> tuple[Path | str, dict[str, Any]]:
    """Pack examples into rows and write their table in ``shelf``; returns (its folder, manifest). A table of the same
    content is reused. seed: of the order in which examples are packed; None: input order. num_rows: rule for the total
    number of rows. report: further entries of the manifest, with "counts". seq_len: tokens of a row. packing: best_fit,
    none or lemur (``assign_rows``). Raises CorpusError if there is no example."""
    if not examples:
        raise _nothing_left(shelf, report)
    if seed is not None:
        examples = [examples[i] for i in np.random.default_rng(seed).permutation(len(examples))]
    lengths = np.array([len(example.tokens) for example in examples], np.int64)
    rows = [list(row) for row in assign_rows(lengths, seq_len, packing)]
    total = max(len(rows), num_rows(len(rows), len(examples)) if num_rows else 0)
    digest = hashlib.sha256(f"{seq_len} {tokenizer.made_of}".encode())
    for example in examples:
        digest.update(example.dataset.encode() + example.tokens.tobytes() + example.trained.tobytes())
    if packing != "best_fit" or total > len(rows):
        digest.update(f"{packing} {total}".encode())
    config_hash = digest.hexdigest()
    place = place_in(shelf, config_hash[:12])
    if is_current(place):
        return place, read_manifest(place)
    folder = work_folder(place) if isinstance(place, str) else place
    folder.mkdir(parents=True, exist_ok=True)
    save_folder(tokenizer, folder)
    if any(example.messages for example in examples):
        columns = {name: [getattr(example, name) for example in examples] for name in ("dataset", "id", "messages")}
        pq.write_table(pa.table(columns), folder / "conversations.parquet", compression="zstd")
    source = _write(folder, examples, rows, total, tokenizer, seq_len, packing)
    manifest = {
        "tokenizer": "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "seq_len": seq_len,
        "sources": [source],
        "fill": source["tokens"] / (source["rows"] * seq_len),
        **report,
        "config_hash": config_hash,
    }
    write_manifest(folder, manifest)
    if isinstance(place, str):
        publish(folder, place, last=MANIFEST)
        shutil.rmtree(folder)
    return place, read_manifest(place)


def place_in(shelf: str | Path, name: str) -> Path | str:
    """Location of the subfolder ``name`` of ``shelf``: a path, or a URL if ``shelf`` is one."""
    return f"{shelf}/{name}" if is_bucket(str(shelf)) else Path(shelf) / name


def assign_rows(lengths: np.ndarray, seq_len: int, packing: Packing) -> Iterable[Sequence[int]]:
    """Yield, for each row of ``seq_len`` tokens, the indices of the examples packed into it, in their order in the row.
    lengths: tokens of each example, at most ``seq_len``. packing: best_fit packs tightly; none puts one into a row;
    lemur appends examples in input order while there is room for the next one and a separator (the released code did
    not count the separator, so its rows could exceed the limit by one token)."""
    if packing == "none":
        yield from ([i] for i in range(len(lengths)))
    elif packing == "lemur":
        row: list[int] = []
        used = 0
        for i, length in enumerate(lengths.tolist()):
            if row and used + 1 + length > seq_len:
                yield row
                row, used = [], 0
            used += length + bool(row)
            row.append(i)
        yield row
    else:
        packing_plan = pack(lengths, seq_len)
        bounds = np.searchsorted(packing_plan.row, np.arange(packing_plan.num_rows + 1))
        for begin, end in itertools.pairwise(bounds):
            yield packing_plan.document[begin:end].tolist()


def _write(
    folder: Path,
    examples: Sequence[Example],
    rows: Sequence[Sequence[int]],
    total: int,
    tokenizer: Tokenizer,
    seq_len: int,
    packing: Packing,
) -> dict[str, Any]:
    """Write the row set, padded with untrained rows to ``total``; returns its entry in the manifest's ``sources``."""
    joint = (np.array([_or(tokenizer.eos_id, tokenizer.filler_id)], np.int32), np.zeros(1, bool))
    with RowWriter(
        row_folder(folder, SOURCE), seq_len, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.filler_id
    ) as writer:
        for members in rows:
            pieces = [(examples[i].tokens, examples[i].trained) for i in members]
            if packing == "lemur":  # one document: attention is not separated, positions continue
                parts = [part for piece in pieces for part in (joint, piece)][1:]
                pieces = [(np.concatenate([t for t, _ in parts]), np.concatenate([m for _, m in parts]))]
            writer.write([tokens for tokens, _ in pieces], [marks for _, marks in pieces])
        for _ in range(total - len(rows)):
            writer.write([np.array([_or(tokenizer.bos_id, tokenizer.filler_id)], np.int32)], [np.zeros(1, bool)])
        writer.close(documents=len(examples))
    return {
        "name": SOURCE,
        "kind": "chat",
        "rows": total,
        "empty_rows": total - len(rows),
        "tokens": int(sum(len(example.tokens) for example in examples)),
        "trained_tokens": int(sum(example.trained.sum() for example in examples)),
        "documents": len(examples),
    }


def _or(token: int | None, filler: int) -> int:
    return filler if token is None else token
