"""The three parallel steps of a build: clean a part, tokenise a part, pack a window.

Each reads files of the build folder and commits its output by a small JSON file, written last, with the sizes of the
other files; it does nothing if its output is already complete. So a step may be killed and run again on any host, and a
power cut costs at most one part. The build folder is FOLDER/.build/NAME of a corpus folder. ``NEEDS`` and ``GIVES``
list the files that each step reads and writes, for hosts that do not share that folder (``step_files``). A part is a
group of files of one source; a window is the documents of one shard of a row set.

    parts/N.json   files of one source                sets/NAME-W.npy    (part, index, length) of a shard's documents
    clean/N.*      texts that pass, and their ids     sets/NAME-W.json   manifest entry of shard W of a row set
    scan/, near/   ``comparison.scan_steps``
    keep/N.npy     mask of those that are selected    tokens/N.*         those as token ids
    tokenizer/     files of the tokenizer
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.cleaning.filters import drop_rule, filter_set, mask_personal_data
from lemur_ray.corpus.cleaning.language import language_rule
from lemur_ray.corpus.cleaning.web_rules import without_boilerplate
from lemur_ray.corpus.documents import Kind, content_id
from lemur_ray.corpus.packing import pack
from lemur_ray.corpus.rows import token_dtype, write_atomically, write_shard
from lemur_ray.corpus.sources.texts import FileRef, read_texts
from lemur_ray.corpus.tokenise import tokenise
from lemur_ray.outside_data.byte_stream import ReadFailure
from lemur_ray.text.tokenizer_folder import tokenizer_in

BATCH = 512
"""Documents in memory at a time while a part is cleaned or tokenised."""
TOKENIZER = "tokenizer"
"""Folder of the tokenizer's files in the build folder."""
FOLDERS = ("parts", "clean", "scan", "near", "keep", "tokens", "sets", TOKENIZER)
"""Subfolders of a build folder."""
_CLEAN, _TOKENS = (".parquet", ".ids", ".sizes"), (".bin", ".lengths")
_SCHEMA = pa.schema([(name, pa.string()) for name in ("text", "language", "licence", "path", "origin")])


def part_done(build: Path, number: int, stage: str) -> bool:
    """Whether the output of ``stage`` (clean or tokens) for part ``number`` is committed and complete."""
    base = build / stage / f"{number:05d}"
    return _whole({base.with_suffix(s): n for s, n in _read_json(base.with_suffix(".json")).get("files", {}).items()})


def _read_json(path: Path) -> dict[str, Any]:
    """JSON object in a commit file; {} if the file is missing or truncated."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _whole(sizes: dict[Path, int]) -> bool:
    return bool(sizes) and all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def commit(base: Path, suffixes: tuple[str, ...], **more: Any) -> None:
    """Write the commit file of a step: sizes of its output files ``base`` with each suffix, and more JSON values."""
    value = {"files": {suffix: base.with_suffix(suffix).stat().st_size for suffix in suffixes}, **more}
    write_atomically(base.with_suffix(".json"), json.dumps(value).encode(), durable=False)


def clean_part(build: Path, number: int) -> None:
    """Read and filter the documents of part ``number`` and mask addresses; writes texts, ids, sizes and counts.

    A part with a file that cannot be read to its end is written without documents; its counts have ``failed``.
    """
    if part_done(build, number, "clean"):
        return
    part = json.loads((build / "parts" / f"{number:05d}.json").read_bytes())
    base = build / "clean" / f"{number:05d}"
    temporary = base.with_suffix(f".{uuid.uuid4().hex[:12]}.part")  # a task of a killed driver may still run
    failed: dict[str, Any] = {}
    try:
        documents = _clean_into(temporary, part["files"], part["kind"], part.get("filters", ""))
    except ReadFailure as error:
        failed = {"failed": {"file": error.file, "position": error.position, "reason": error.reason}}
        documents = _clean_into(temporary, [], part["kind"])
    temporary.replace(base.with_suffix(".parquet"))
    write_atomically(base.with_suffix(".ids"), bytes(documents.ids), durable=False)
    write_atomically(base.with_suffix(".sizes"), np.array(documents.sizes, "<i8").tobytes(), durable=False)
    read = len(documents.sizes) + sum(documents.dropped.values())
    commit(base, _CLEAN, read=read, dropped=dict(documents.dropped), masked=dict(documents.masked), **failed)


@dataclass
class _Cleaned:
    """Concatenated ids and sizes in bytes of the documents of a part that passed, counts of dropped ones and masks."""

    ids: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)


def _clean_into(path: Path, files: Sequence[Sequence[Any]], kind: Kind, filters: Any = "") -> _Cleaned:
    """Write the texts that pass to the parquet file ``path``. Raises ReadFailure."""
    out, rows, rules = _Cleaned(), [], filter_set(filters, kind)
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        for ref in (FileRef(*fields) for fields in files):
            for item in read_texts(ref):
                text = without_boilerplate(item.text) if rules.base == "web" else item.text
                rule = item.rule or drop_rule(text, kind, rules) or (rules.languages and language_rule(text, rules))
                if rule:
                    out.dropped[rule] += 1
                    continue
                text, replaced = mask_personal_data(text)
                out.masked.update(replaced)
                out.ids += content_id(text)
                out.sizes.append(len(text.encode()))
                name = item.path.encode("utf-8", "replace").decode()
                about = {"language": item.language, "licence": item.licence, "path": name, "origin": item.origin}
                rows.append({"text": text, **about})
                if len(rows) == BATCH:
                    writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
                    rows = []
        writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
    return out


def failed_parts(build: Path, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Part, file, position and reason of each of these cleaned parts that could not be read."""
    commits = ((number, _read_json(build / "clean" / f"{number:05d}.json")) for number in numbers)
    return [{"part": number, **value["failed"]} for number, value in commits if "failed" in value]


def read_clean(build: Path, number: int) -> tuple[dict[str, Any], bytes, np.ndarray]:
    """(counts of documents, concatenated ids of 16 bytes, sizes in bytes as int64) of a cleaned part."""
    base = build / "clean" / f"{number:05d}"
    counts = json.loads(base.with_suffix(".json").read_bytes())
    return counts, base.with_suffix(".ids").read_bytes(), np.fromfile(base.with_suffix(".sizes"), "<i8")


def texts_of(build: Path, number: int, keep: np.ndarray) -> list[str]:
    """Texts of those documents of a cleaned part for which ``keep``, (documents,) bool, is True, in order."""
    table = pq.read_table(build / "clean" / f"{number:05d}.parquet", columns=["text"])
    return table.filter(pa.array(keep)).column("text").to_pylist()


def tokenise_part(build: Path, number: int) -> None:
    """Encode the documents of part ``number`` that ``keep/N.npy`` selects; writes token ids and lengths."""
    if part_done(build, number, "tokens"):
        return
    keep = np.load(build / "keep" / f"{number:05d}.npy")
    tokenizer = tokenizer_in(build / TOKENIZER)
    dtype = token_dtype(tokenizer.vocab_size)
    base = build / "tokens" / f"{number:05d}"
    lengths: list[np.ndarray] = []
    temporary = base.with_suffix(f".{uuid.uuid4().hex[:12]}.part")
    begin = 0
    with open(temporary, "wb") as f, pq.ParquetFile(build / "clean" / f"{number:05d}.parquet") as table:
        for batch in table.iter_batches(batch_size=BATCH, columns=["text"]):
            here = keep[begin : begin + len(batch)]
            begin += len(batch)
            flat, counts = tokenise(batch.column("text").filter(pa.array(here)).to_pylist(), tokenizer, dtype)
            f.write(flat.tobytes())
            lengths.append(counts)
    temporary.replace(base.with_suffix(".bin"))
    all_lengths = np.concatenate([np.zeros(0, np.int64), *lengths])
    write_atomically(base.with_suffix(".lengths"), all_lengths.astype("<i8").tobytes(), durable=False)
    commit(base, _TOKENS)


def read_lengths(build: Path, number: int) -> np.ndarray:
    """Number of tokens of every tokenised document of a part, (documents,) int64."""
    return np.fromfile(build / "tokens" / f"{number:05d}.lengths", "<i8")


def rows_of(build: Path, name: str) -> Path:
    """Folder of a row set in the corpus folder of this build."""
    return build.parents[1] / "rows" / name


def window_done(build: Path, name: str, window: int) -> bool:
    """Whether shard ``window`` of the row set ``name`` is committed and complete."""
    return _whole(dict(_shard(build, name, window)))


def _shard(build: Path, name: str, window: int) -> Iterator[tuple[Path, int]]:
    """Yield (path, expected bytes) of each file of a shard; nothing if it is not committed."""
    entry = _read_json(build / "sets" / f"{name}-{window:05d}.json")
    for kind, file in entry.get("files", {}).items():
        yield rows_of(build, name) / f"{entry['name']}.{kind}", file["bytes"]


def pack_window(build: Path, name: str, window: int, *, seq_len: int, pad_id: int, vocab_size: int) -> None:
    """Pack the documents listed in ``sets/NAME-W.npy`` into rows, written as shard ``window`` of row set ``name``."""
    if window_done(build, name, window):
        return
    documents = np.load(build / "sets" / f"{name}-{window:05d}.npy")
    dtype = token_dtype(vocab_size)
    where = pack(documents[:, 2], seq_len)
    tokens = np.full((where.num_rows, seq_len), pad_id, dtype)
    streams: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for part in np.unique(documents[:, 0]).tolist():
        ends = np.cumsum(read_lengths(build, part))
        streams[part] = (np.memmap(build / "tokens" / f"{part:05d}.bin", dtype, "r"), ends)
    used = np.zeros(where.num_rows, np.int64)
    pieces = zip(where.document.tolist(), where.start.tolist(), where.length.tolist(), where.row.tolist(), strict=True)
    for document, start, length, row in pieces:
        part, index, total = documents[document].tolist()
        stream, ends = streams[part]
        first = int(ends[index]) - total + start
        tokens[row, used[row] : used[row] + length] = stream[first : first + length]
        used[row] += length
    counts = np.bincount(where.row, minlength=where.num_rows)
    rows_of(build, name).mkdir(parents=True, exist_ok=True)
    entry = write_shard(rows_of(build, name), f"{window:05d}", tokens, where.length, counts)
    write_atomically(build / "sets" / f"{name}-{window:05d}.json", json.dumps(entry).encode(), durable=False)


def _needs_of_window(build: Path, name: str, window: int, **_: Any) -> Iterator[str]:
    yield f"sets/{name}-{window:05d}.npy"
    for part in np.unique(np.load(build / "sets" / f"{name}-{window:05d}.npy")[:, 0]).tolist():
        yield from (f"tokens/{part:05d}{suffix}" for suffix in _TOKENS)


def _gives_of_window(build: Path, name: str, window: int, **_: Any) -> list[Path]:
    return [*(path for path, _ in _shard(build, name, window)), build / "sets" / f"{name}-{window:05d}.json"]


def outputs_of_part(stage: str, suffixes: tuple[str, ...]) -> Callable[..., list[Path]]:
    """Function of the build folder and a step's arguments with the paths of its output files, for ``GIVES``."""
    return lambda build, number, **_: [build / stage / f"{number:05d}{suffix}" for suffix in (*suffixes, ".json")]


NEEDS: dict[Callable[..., None], Callable[..., Iterator[str]]] = {
    clean_part: lambda build, number: iter([f"parts/{number:05d}.json"]),
    tokenise_part: lambda build, number: iter(
        [f"keep/{number:05d}.npy", f"clean/{number:05d}.parquet", f"{TOKENIZER}/"]
    ),
    pack_window: _needs_of_window,
}
"""For each step, a function of the build folder and the step's arguments that yields the names of its input files below
that folder (a folder ends in a slash). A name may depend on the content of files yielded earlier."""
GIVES: dict[Callable[..., None], Callable[..., list[Path]]] = {
    clean_part: outputs_of_part("clean", _CLEAN),
    tokenise_part: outputs_of_part("tokens", _TOKENS),
    pack_window: _gives_of_window,
}
"""For each step, a function of the build folder and its arguments: paths of its output files, the commit file last."""
