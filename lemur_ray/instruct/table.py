"""Conversations into an instruction table: a corpus folder with one row set, ``chat``, and trained marks per token.

The trainer reads it like any corpus. The data sets are packed together, because a small one in rows of its own would
come as a shock to a model that has long been reading the other. Loss falls on the assistant alone; a conversation
longer than a row is cut on the right, and one without a trained token left is dropped and counted. Knows no model and
no Ray.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.manifest import CorpusError, is_complete, local_folder, read_manifest, row_folder, write_manifest
from lemur_ray.corpus.packing import pack
from lemur_ray.corpus.rows import RowWriter
from lemur_ray.instruct.conversation import Conversation, fault
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.tokenizer import Tokenizer

SOURCE = "chat"
"""Name of the one source of an instruction table."""


def build_table(
    conversations: Iterable[Conversation], tokenizer: Tokenizer, shelf: str | Path, *, seq_len: int
) -> tuple[Path, dict[str, Any]]:
    """Write the instruction table of ``conversations`` into a corpus folder of its own; returns it and its manifest.

    The folder lies in ``shelf`` and is named by its content, so a table that a run reads is never rewritten: the same
    conversations in the same order are the same table, which is written once, others are other folders. Raises
    CorpusError where no conversation is left.
    """
    encoded: list[tuple[np.ndarray, np.ndarray]] = []
    kept: Counter[str] = Counter()
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    seen: Counter[str] = Counter()
    digest = hashlib.sha256(f"{seq_len} {tokenizer.to_json()}".encode())
    for conversation in conversations:
        name = conversation.dataset
        seen[name] += 1
        if reason := fault(conversation):
            dropped[name][reason] += 1
            continue
        ids, trained = encode_chat(tokenizer, conversation.messages)
        if len(ids) > seq_len:
            dropped[name]["cut_at_row_length"] += 1
        marks = np.array(trained[:seq_len], bool)
        if not marks.any():
            dropped[name]["no_trained_token"] += 1
            continue
        tokens = np.array(ids[:seq_len], np.int32)
        digest.update(name.encode() + tokens.tobytes() + marks.tobytes())
        encoded.append((tokens, marks))
        kept[name] += 1
    if not encoded:
        reasons = {name: dict(counts) for name, counts in dropped.items()}
        raise CorpusError(f"no conversation left for {shelf}: {sum(seen.values())} read, dropped {json.dumps(reasons)}")
    config_hash = digest.hexdigest()
    folder = local_folder(shelf) / config_hash[:12]
    if is_complete(folder):
        return folder, read_manifest(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    source = _write(folder, encoded, tokenizer, seq_len)
    manifest = {
        "tokenizer": "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "seq_len": seq_len,
        "sources": [source],
        "fill": source["tokens"] / (source["rows"] * seq_len),
        "counts": {name: {"read": seen[name], "kept": kept[name], **dropped[name]} for name in sorted(seen)},
        "config_hash": config_hash,
    }
    write_manifest(folder, manifest)
    return folder, read_manifest(folder)


def _write(
    folder: Path, examples: list[tuple[np.ndarray, np.ndarray]], tokenizer: Tokenizer, seq_len: int
) -> dict[str, Any]:
    """Pack the examples and write their rows; returns the source's entry in the manifest."""
    packing = pack(np.array([len(tokens) for tokens, _ in examples], np.int64), seq_len)
    with RowWriter(
        row_folder(folder, SOURCE), seq_len, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id
    ) as writer:
        bounds = np.searchsorted(packing.row, np.arange(packing.num_rows + 1))
        for begin, end in itertools.pairwise(bounds):
            members = packing.document[begin:end]
            writer.write([examples[i][0] for i in members], [examples[i][1] for i in members])
    return {
        "name": SOURCE,
        "kind": "chat",
        "rows": packing.num_rows,
        "tokens": int(sum(len(tokens) for tokens, _ in examples)),
        "trained_tokens": int(sum(marks.sum() for _, marks in examples)),
        "documents": len(examples),
    }
