"""Steps from files of conversations to tokens, each a function of one Arrow table: read, clean, embed, encode.

A dropped row stays in its table, marked with stage and rule, until it is counted, so that all counts add up."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lemur_ray.agents.messages import Message
from lemur_ray.corpus.cleaning.decontaminate import overlap
from lemur_ray.instruct import clean
from lemur_ray.instruct.config import FILTERED_BY_TEXT, SetsConfig
from lemur_ray.instruct.conversation import Conversation, readable
from lemur_ray.instruct.near_duplicates import encoder
from lemur_ray.instruct.readers.public_sets import read_set
from lemur_ray.instruct.statistics import MEASURES, measures
from lemur_ray.instruct.table import REFUSED
from lemur_ray.storage.published_folder import local_copy
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.chat_template import TemplateError, TemplateUnusable
from lemur_ray.text.tokenizer import Tokenizer

ROWS = 512
"""Rows per table; constant, so that batch effects such as an encoder's rounding do not depend on workers."""

FILES = pa.schema([("set", pa.string()), ("path", pa.string()), ("number", pa.int64())])
CONVERSATIONS = pa.schema(
    [
        ("order", pa.int64()),
        ("dataset", pa.string()),
        ("id", pa.string()),
        ("messages", pa.large_string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("note", pa.string()),
    ]
)
"""order: position in the input, unique over all files. messages: JSON. stage, reason: where and why a row was dropped,
else empty. note: remark on a row that is kept."""
TOKENS = pa.schema(
    [
        *CONVERSATIONS,
        ("tokens", pa.list_(pa.int32())),
        ("trained", pa.list_(pa.bool_())),
        *((name, pa.int64()) for name in MEASURES),
    ]
)


def messages_of(text: str) -> tuple[Message, ...]:
    """Messages of a conversation from the JSON text of a cell in column ``messages``."""
    return tuple(Message.from_json(message) for message in json.loads(text))


def messages_cell(messages: tuple[Message, ...]) -> str:
    """JSON text for a cell in column ``messages`` from the messages of a conversation; inverse of ``messages_of``."""
    return json.dumps([message.to_json() for message in messages], ensure_ascii=False)


def read_files(table: pa.Table, config: SetsConfig, environment: Mapping[str, str] | None = None) -> Iterator[pa.Table]:
    """Yield tables (schema CONVERSATIONS) of at most ``ROWS`` records, rejected ones included, from the files listed in
    ``table`` (schema FILES), local or in buckets. environment: variables that are set in this process first, with which
    the driver reaches its buckets. Raises ValueError or OSError naming a file that cannot be read."""
    os.environ.update(environment or {})
    for file in table.to_pylist():
        with local_copy(file["path"]) as path:
            try:
                yield from _read_file(file, Path(path), config)
            except ValueError as error:
                raise ValueError(str(error).replace(path, file["path"])) from error


def _read_file(file: dict[str, Any], path: Path, config: SetsConfig) -> Iterator[pa.Table]:
    rows: list[dict[str, Any]] = []
    for number, result in enumerate(read_set(file["set"], path, config)):
        row = {
            "order": (file["number"] << 40) + number,
            "dataset": result.dataset,
            "id": readable(result.id),
            "note": "",
        }
        if isinstance(result, Conversation):
            row |= {"messages": messages_cell(result.messages), "stage": "", "reason": ""}
        else:
            row |= {"messages": "", "stage": "read", "reason": result.reason}
        rows.append(row)
        if len(rows) == ROWS:
            yield pa.Table.from_pylist(rows, CONVERSATIONS)
            rows = []
    if rows:
        yield pa.Table.from_pylist(rows, CONVERSATIONS)


def clean_rows(table: pa.Table, config: SetsConfig) -> pa.Table:
    """Copy of a table (schema CONVERSATIONS) after the filters of single conversations: language, letters, patterns. A
    dropped row stays, with its stage and reason; rows dropped before are unchanged."""
    patterns = [re.compile(pattern, re.IGNORECASE) for pattern in config.drop_patterns]
    rows = table.to_pylist()
    for row in rows:
        if not row["stage"]:
            row |= _cleaned(row, config, patterns)
    return pa.Table.from_pylist(rows, CONVERSATIONS)


def _cleaned(row: dict[str, Any], config: SetsConfig, patterns: list[re.Pattern[str]]) -> dict[str, Any]:
    """New values of the columns that the filters change in a row: stage and reason if dropped, note, messages."""
    messages, out = messages_of(row["messages"]), {}
    text = clean.instruction(messages)
    if row["dataset"] in FILTERED_BY_TEXT:
        if config.language:
            language = clean.detected_language(text, config.language_probability)
            if language is None:
                out["note"] = "language_not_detected"
            elif language != config.language:
                return _dropped_row("language", f"not_{config.language}_but_{language}")
        if config.character_run and clean.character_run(text) >= config.character_run:
            if config.character_run_unit == "row":
                return _dropped_row("character_run", "foreign_letters")
            text = clean.without_foreign_sentences(text, config.character_run)
            if not text:
                return _dropped_row("character_run", "nothing_left")
            messages = clean.with_instruction(messages, text)
            out |= {"note": "sentence_removed", "messages": messages_cell(messages)}
    if clean.holds(messages, patterns):
        return _dropped_row("patterns", "drop_pattern")
    return out


def _dropped_row(stage: str, reason: str) -> dict[str, Any]:
    return {"stage": stage, "reason": reason, "messages": ""}


def embed(table: pa.Table, spec: str, prompt: str = "") -> pa.Table:
    """Table with columns ``order`` and ``vector`` (float32): the embedding of each row's first user turn. table: schema
    CONVERSATIONS, at least one row; spec, prompt: of `near_duplicates.encoder`."""
    texts = [clean.instruction(messages_of(cell)) for cell in table.column("messages").to_pylist()]
    vectors = np.asarray(encoder(spec, prompt)(texts), np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({"order": table.column("order").combine_chunks(), "vector": flat})


def encode(
    table: pa.Table, tokenizer: Tokenizer, seq_len: int, benchmarks: dict[int, str], drop_overlap: bool
) -> pa.Table:
    """Table (schema TOKENS) of a table of kept conversations as token ids, cut at ``seq_len``, with a flag per token
    whether it is trained. A conversation that the chat template rejects, or of which no trained token is left, stays as
    a dropped row. benchmarks: index from 13-gram hash to file name. drop_overlap: drop conversations that share a
    13-gram, instead of a note. Raises TemplateUnusable if the template is invalid for every conversation."""
    rows = table.to_pylist()
    for row in rows:
        messages = messages_of(row["messages"])
        if benchmarks and (shared := overlap((message.content for message in messages), benchmarks)):
            row["note"] = f"overlaps {shared}"
            if drop_overlap:
                row |= _dropped_row("decontaminate", f"overlaps {shared}")
                continue
        try:
            ids, trained = encode_chat(tokenizer, messages)
        except TemplateUnusable:
            raise
        except TemplateError:
            row |= _dropped_row("truncate", REFUSED)
            continue
        row |= measures(messages, tokenizer)
        if not any(trained[:seq_len]):
            row |= _dropped_row("truncate", "no_trained_token")
            continue
        if len(ids) > seq_len:
            row["note"] = row["note"] or "cut_at_row_length"
        row |= {"tokens": ids[:seq_len], "trained": trained[:seq_len]}
    return pa.Table.from_pylist(rows, TOKENS)
