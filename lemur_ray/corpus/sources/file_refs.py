"""References to the files of a source, and the documents that are read from them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from lemur_ray.corpus.cleaning.filters import MAX_BYTES
from lemur_ray.outside_data.byte_stream import open_stream


@dataclass(frozen=True)
class FileRef:
    """A file of a source, or a ``part`` of one: where it is, which reader it needs, and what is known of its documents.
    ``FileRef(*ref.to_json())`` restores it."""

    path: str
    """Local path, or URI of a remote file: gs, s3, https, or hf with its commit."""
    size: int
    """Bytes of the file, or of the part, as stored."""
    reader: str = "file"
    """Name of a reader in READERS."""
    name: str = ""
    """Path without the machine's prefix, for messages and for sampling."""
    licence: str = ""
    """Licence of documents that name none themselves; likewise ``language``."""
    language: str = ""
    version: str = ""
    """Version of a remote file, which distinguishes contents of the same size; empty for a local file."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns that hold the text, licence, language and origin of a record, where the source names them."""
    allow: Sequence[str] = ()
    """Licences whose documents are read; empty: all."""
    max_bytes: int = MAX_BYTES
    """Maximum length of a text; longer ones are dropped as too_large."""
    part: Sequence[Any] = ()
    """(unit, begin, end) of a part of the file, with the unit groups (row groups of parquet), bytes (of the lines that
    begin there) or frames (bytes of a run of frames of zstd); empty: all of it."""
    file_size: int = 0
    """Bytes of the whole file if this is a part of it."""

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open a stream over the whole file. Raises ReadFailure, also if its size or version is not as listed."""
        return open_stream(self.path, self.name, size=self.file_size or self.size, version=self.version)

    def to_json(self) -> list[Any]:
        """The fields in order, as JSON values; the last five only if one of them differs from its default."""
        values = [self.path, self.size, self.reader, self.name, self.licence, self.language, self.version]
        if self.fields or self.allow or self.part or self.max_bytes != MAX_BYTES:
            values += [dict(self.fields), list(self.allow), self.max_bytes, list(self.part), self.file_size]
        return values


@dataclass(frozen=True)
class TextResult:
    """A document as read, or, if ``rule`` is not None, the rule by which it was rejected (its text is of no use)."""

    path: str
    """Name of the file, with the number of the record in a file of several."""
    text: str = ""
    rule: str | None = None
    licence: str = ""
    language: str = ""
    origin: str = ""
    """Repository or address that the document comes from, if the source names one."""


def decode(data: bytes) -> str | None:
    r"""Text of UTF-8 bytes, with ``\n`` as line ends and without a byte order mark; None if they are not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
