"""The parallel steps of a build: clean a part, tokenise a part; ``steps.pack_shards`` packs.

Each reads files of the build folder and commits its output by a small JSON file, written last, with the sizes of the
other files; it does nothing if its output is already complete. So a step may be killed and run again on any host, and a
power cut costs at most one part. The build folder is FOLDER/.build of a corpus folder; outputs are named by keys
(``keys``) and stay there for later builds. ``NEEDS`` and ``GIVES`` list the files that each step reads and writes, for
hosts that do not share that folder (``destinations.step_files``). A part is a group of files of one source.

    parts/KEY.json   files of one source              sets/NAME-W.npz    documents of shard W of a row set
    clean/KEY.*      texts that pass, and their ids   sets/NAME-W.json   key and manifest entry of that shard
    keep/KEY.npy     mask of those selected           tokens/KEY.*       those as token ids
    tokenizer/KEY/   files of a tokenizer             bands/, hits/, near/  ``comparison.scan_steps``"""

import json
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lemur_ray.corpus.cleaning.filters import drop_rule, filter_set, mask_personal_data, pieces_of
from lemur_ray.corpus.cleaning.language import language_rule
from lemur_ray.corpus.cleaning.web_rules import without_boilerplate
from lemur_ray.corpus.documents import Kind, content_id
from lemur_ray.corpus.rows import token_dtype, write_atomically
from lemur_ray.corpus.sources.texts import FileRef, read_texts
from lemur_ray.corpus.steps.document_encoder import DocumentEncoder, IdsDiffer, document_encoder
from lemur_ray.corpus.steps.tokenise import tokenise
from lemur_ray.outside_data.byte_stream import ReadFailure
from lemur_ray.text.tokenizer_folder import tokenizer_in

BATCH = 512
"""Documents in memory at a time while a part is cleaned or tokenised."""
BATCH_BYTES = 32 << 20
"""Bytes of text after which such a batch ends earlier."""
TASK_MEMORY = 1e9
"""Bytes of memory that a step reserves on its host; the size of its files does not matter (``worker_memory.py``)."""
TOKENIZER = "tokenizer"
"""Folder of tokenizers in the build folder."""
FOLDERS = ("parts", "clean", "bands", "hits", "near", "keep", "tokens", "sets", TOKENIZER)
"""Subfolders of a build folder."""
_CLEAN, TOKENS = (".parquet", ".about", ".ids", ".sizes", ".examples"), (".bin", ".lengths")
EXAMPLES, _EXAMPLE_CHARACTERS = 10, 300
"""Dropped documents of a part that are stored for each rule, and the characters at their beginning."""
_TEXT = pa.schema([("text", pa.string())])
_ABOUT = pa.schema([(name, pa.string()) for name in ("path", "licence", "language", "origin")])


class DamagedOutput(ValueError):
    """Raised if a file of a committed output is missing or differs from what was written."""

    def __init__(self, stage: str, name: str, suffix: str) -> None:
        super().__init__(stage, name, suffix)
        self.files = (f"{stage}/{name}.json", f"{stage}/{name}{suffix}")
        """The commit file and the damaged file, relative to the build folder."""

    def __str__(self) -> str:
        return f"{self.files[1]} is damaged"


def intact(build: Path, stage: str, name: str, suffix: str) -> Path:
    """Path of the output file STAGE/NAME + suffix in the folder ``build``. Reads it; raises DamagedOutput if it is
    missing or its checksum differs from the recorded one. Without a record (older releases) nothing is checked."""
    path = build / stage / f"{name}{suffix}"
    expected = read_json(path.with_suffix(".json")).get("crc32", {}).get(suffix)  # releases before wrote none
    if expected is not None and (not path.is_file() or _crc32(path) != expected):
        raise DamagedOutput(stage, name, suffix)
    return path


def _crc32(path: Path) -> int:
    with open(path, "rb") as file:
        return reduce(lambda value, chunk: zlib.crc32(chunk, value), iter(partial(file.read, 1 << 20), b""), 0)


def part_done(build: Path, name: str, stage: str) -> bool:
    """Whether a step's output is committed and complete. build: the build folder; name: key of the part or shard
    (``keys``); stage: its subfolder, such as "clean"."""
    base = build / stage / name
    return _whole({base.with_suffix(s): n for s, n in read_json(base.with_suffix(".json")).get("files", {}).items()})


def read_json(path: Path) -> dict[str, Any]:
    """JSON object in a commit file; {} if the file is missing or truncated."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _whole(sizes: dict[Path, int]) -> bool:
    return bool(sizes) and all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def commit(base: Path, suffixes: tuple[str, ...], **more: Any) -> None:
    """Write the commit file of a step: sizes and CRC-32 of its output files ``base`` + suffix, and more JSON values."""
    paths = {suffix: base.with_suffix(suffix) for suffix in suffixes}
    value = {"files": {suffix: path.stat().st_size for suffix, path in paths.items()}, **more}
    value["crc32"] = {suffix: _crc32(path) for suffix, path in paths.items()}
    write_atomically(base.with_suffix(".json"), json.dumps(value).encode(), durable=False)


@dataclass
class _Cleaned:
    """Concatenated ids and sizes in bytes of the documents of a part that passed, counts of dropped ones and masks."""

    ids: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    about: list[pa.Table] = field(default_factory=list)
    """Tables of the file, licence, language and origin of those that passed."""
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """(file, beginning of the text) of the first dropped documents by rule."""

    def drop(self, rule: str, path: str, text: str) -> None:
        """Count a dropped document, and store the first of each rule as examples."""
        self.dropped[rule] += 1
        if self.dropped[rule] <= EXAMPLES:
            self.examples.setdefault(rule, []).append(
                (path, excerpt(mask_personal_data(text[: 10 * _EXAMPLE_CHARACTERS])[0]))
            )


def clean_part(build: Path, name: str) -> dict[str, Any]:
    """Step: read, filter and mask the documents of part ``name``; writes ``clean/NAME.*`` in the build folder.
    Returns the counts: read, dropped (by rule), masked (by kind), ``failed`` of a part with a file that cannot be
    read to its end, which is written without documents, and ``empty_columns`` if a named column has no values."""
    base = build / "clean" / name
    if part_done(build, name, "clean"):
        return read_json(base.with_suffix(".json"))
    part = json.loads((build / "parts" / f"{name}.json").read_bytes())
    temporary = base.with_suffix(f".{uuid.uuid4().hex[:12]}.part")  # a task of a killed driver may still run
    failed: dict[str, Any] = {}
    try:
        documents = _clean_into(temporary, part["files"], part["kind"], part["filters"])
    except ReadFailure as error:
        failed = {"failed": {"file": error.file, "position": error.position, "reason": error.reason}}
        documents = _clean_into(temporary, [], part["kind"])
    temporary.replace(base.with_suffix(".parquet"))
    about = pa.concat_tables([_ABOUT.empty_table(), *documents.about])
    write_atomically(base.with_suffix(".about"), parquet_bytes(about), durable=False)
    write_atomically(base.with_suffix(".ids"), bytes(documents.ids), durable=False)
    write_atomically(base.with_suffix(".sizes"), np.array(documents.sizes, "<i8").tobytes(), durable=False)
    write_atomically(base.with_suffix(".examples"), json.dumps(documents.examples).encode(), durable=False)
    read = len(documents.sizes) + sum(documents.dropped.values())
    empty = {"empty_columns": names} if (names := _empty_columns(part["files"], documents)) else {}
    commit(base, _CLEAN, read=read, dropped=dict(documents.dropped), masked=dict(documents.masked), **failed, **empty)
    return read_json(base.with_suffix(".json"))


def _empty_columns(files: Sequence[Sequence[Any]], documents: _Cleaned) -> list[str]:
    """Which of licence, language and origin no document has although the source names a column for it."""
    named = {name for file in files for name in FileRef(*file).fields if name != "text"}
    filled = {name for name in named if any(pc.any(pc.not_equal(one[name], "")).as_py() for one in documents.about)}
    return sorted(named - filled) if documents.sizes else []


def parquet_bytes(table: pa.Table) -> bytes:
    """Content of a parquet file with this table, compressed by zstd."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def excerpt(text: str) -> str:
    """The first 300 characters of a text, as an example of dropped documents."""
    return text[:_EXAMPLE_CHARACTERS]


def _clean_into(path: Path, files: Sequence[Sequence[Any]], kind: Kind, filters: Any = "") -> _Cleaned:
    """Write the texts that pass to the parquet file ``path``. Raises ReadFailure."""
    out, texts, about, rules, waiting = _Cleaned(), [], [], filter_set(filters, kind), 0
    with pq.ParquetWriter(path, _TEXT, compression="zstd") as writer:
        for ref in (FileRef(*fields) for fields in files):
            for item, piece in ((one, piece) for one in read_texts(ref) for piece in pieces_of(one.text, rules)):
                text = without_boilerplate(piece) if rules.base == "web" else piece
                rule = item.rule or drop_rule(text, kind, rules) or (rules.languages and language_rule(text, rules))
                if rule:
                    out.drop(rule, item.path, text)
                    continue
                text, replaced = mask_personal_data(text)
                if replaced:
                    out.masked.update(replaced)
                out.ids += content_id(text)
                out.sizes.append(len(text) if text.isascii() else len(text.encode()))
                texts.append(text)
                name = item.path.encode("utf-8", "replace").decode()
                about.append((name, item.licence, item.language, item.origin))
                waiting += out.sizes[-1]
                if len(texts) == BATCH or waiting > BATCH_BYTES:
                    _write(writer, texts, about, out)
                    texts, about, waiting = [], [], 0
        _write(writer, texts, about, out)
    return out


def _write(writer: pq.ParquetWriter, texts: list[str], about: Sequence[tuple[str, ...]], out: _Cleaned) -> None:
    writer.write_table(pa.table({"text": texts}, _TEXT))
    columns = zip(*about, strict=True) if about else [()] * len(_ABOUT)
    out.about.append(pa.table([pa.array(column, pa.string()) for column in columns], schema=_ABOUT))


def failed_parts(build: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Part (number), file, position and reason of each of the cleaned parts ``names`` that could not be read; [] if all
    could. build: build folder."""
    commits = (read_json(build / "clean" / f"{name}.json") for name in names)
    return [{"part": number, **value["failed"]} for number, value in enumerate(commits) if "failed" in value]


def read_clean(build: Path, name: str) -> tuple[dict[str, Any], bytes, np.ndarray]:
    """(counts of documents, concatenated ids of 16 bytes, sizes in bytes as int64) of a cleaned part. build: build
    folder; name: key of the part. Raises DamagedOutput."""
    counts = json.loads((build / "clean" / f"{name}.json").read_bytes())
    sizes = np.fromfile(intact(build, "clean", name, ".sizes"), "<i8")
    return counts, intact(build, "clean", name, ".ids").read_bytes(), sizes


def text_batches(build: Path, name: str) -> Iterator[pa.Array]:
    """Yield the texts of a cleaned part in batches, in the sizes in which they were written. build: build folder; name:
    key of the part. Raises DamagedOutput."""
    with pq.ParquetFile(intact(build, "clean", name, ".parquet")) as table:
        for group in range(table.num_row_groups):
            for batch in table.iter_batches(batch_size=BATCH, row_groups=[group], use_threads=False):
                yield batch.column("text")


def texts_of(build: Path, name: str, keep: np.ndarray) -> list[str]:
    """Texts of those documents of a cleaned part for which ``keep``, (documents,) bool, is True, in order. build: build
    folder; name: key of the part. Raises DamagedOutput."""
    table = pq.read_table(intact(build, "clean", name, ".parquet"))
    return table.filter(pa.array(keep)).column("text").to_pylist()


def tokenise_part(build: Path, name: str, clean: str, keep: str, tokenizer: str) -> dict[str, str]:
    """Step: encode the documents of part ``clean`` that ``keep/KEEP.npy`` selects, with ``tokenizer/TOKENIZER``; writes
    ``tokens/NAME.*`` in the folder ``build``. Returns the ``library`` that encoded them and the ``reason`` why it is
    not the fast one ("": it is); {} if the part was complete. Raises DamagedOutput for its inputs."""
    if part_done(build, name, "tokens"):
        return {}
    mask, text = np.load(build / "keep" / f"{keep}.npy"), tokenizer_in(build / TOKENIZER / tokenizer)
    base = build / "tokens" / name
    temporary = base.with_suffix(f".{uuid.uuid4().hex[:12]}.part")
    encoder = document_encoder(text)
    try:
        lengths = _encode_into(temporary, text_batches(build, clean), mask, encoder)
    except IdsDiffer as error:
        encoder = DocumentEncoder(text, fallback_reason=str(error))
        lengths = _encode_into(temporary, text_batches(build, clean), mask, encoder)
    temporary.replace(base.with_suffix(".bin"))
    write_atomically(base.with_suffix(".lengths"), lengths.astype("<i8").tobytes(), durable=False)
    commit(base, TOKENS)
    return {"library": encoder.library, "reason": encoder.fallback_reason}


def _encode_into(path: Path, clean: Iterable[pa.Array], keep: np.ndarray, encoder: DocumentEncoder) -> np.ndarray:
    """Write the ids of the selected texts of a cleaned part; returns the length of each. Raises IdsDiffer."""
    lengths, begin = [np.zeros(0, np.int64)], 0
    dtype = token_dtype(encoder.tokenizer.vocab_size)
    with open(path, "wb") as f:
        for batch in clean:
            here = keep[begin : begin + len(batch)]
            begin += len(batch)
            texts = batch.filter(pa.array(here)).to_pylist()
            flat, counts = tokenise(texts, encoder.tokenizer, dtype, encoder)
            f.write(flat.tobytes())
            lengths.append(counts)
    return np.concatenate(lengths)


def read_lengths(build: Path, name: str) -> np.ndarray:
    """(documents,) int64: tokens of each document of part ``name``. build: build folder. Raises DamagedOutput."""
    return np.fromfile(intact(build, "tokens", name, ".lengths"), "<i8")


def rows_of(build: Path, name: str) -> Path:
    """Folder of the row set ``name`` of the corpus whose build folder is ``build``."""
    return build.parent / "rows" / name


def window_done(build: Path, shard: str, key: str) -> bool:
    """Whether the shard (NAME-W) that lies in the corpus is complete and is the output with this key. build: build
    folder of the corpus."""
    return read_json(build / "sets" / f"{shard}.json").get("key") == key and _whole(dict(files_of(build, shard)))


def files_of(build: Path, shard: str) -> Iterator[tuple[Path, int]]:
    """Yield (path, expected bytes) of each file of a shard; nothing if it is not committed. build: build folder."""
    entry = read_json(build / "sets" / f"{shard}.json").get("shard", {})
    for kind, file in entry.get("files", {}).items():
        yield rows_of(build, shard.rpartition("-")[0]) / f"{entry['name']}.{kind}", file["bytes"]


def totals(about: pa.Table, column: str) -> dict[str, tuple[int, int]]:
    """Value of ``column`` -> (documents, tokens) in a table of documents, ordered by value. about: the table, one row
    for each document."""
    groups = about.group_by(column).aggregate([("tokens", "count"), ("tokens", "sum")]).sort_by(column)
    return {one[column]: (one["tokens_count"], one["tokens_sum"]) for one in groups.to_pylist()}


def outputs_of_part(stage: str, suffixes: tuple[str, ...]) -> Callable[..., list[Path]]:
    """A function for ``GIVES``, from the build folder and a step's arguments to the paths of its output files. stage:
    folder of the files; suffixes: their endings, to which that of the commit file is added."""
    return lambda build, name, **_: [build / stage / f"{name}{suffix}" for suffix in (*suffixes, ".json")]


NEEDS: dict[Callable[..., Any], Callable[..., Iterator[str]]] = {
    clean_part: lambda build, name: iter([f"parts/{name}.json"]),
    tokenise_part: lambda build, name, clean, keep, tokenizer: iter(
        [f"keep/{keep}.npy", f"clean/{clean}.json", f"clean/{clean}.parquet", f"{TOKENIZER}/{tokenizer}/"]
    ),
}
"""For each step, a function of the build folder and the step's arguments that yields the names of its input files below
that folder (a folder ends in a slash). A name may depend on the content of files yielded earlier."""
GIVES: dict[Callable[..., Any], Callable[..., list[Path]]] = {
    clean_part: outputs_of_part("clean", _CLEAN),
    tokenise_part: outputs_of_part("tokens", TOKENS),
}
"""For each step, a function of the build folder and its arguments: paths of its output files, the commit file last."""
