"""Declarations of external files: path in the data folder, address, checksum, licence. Fetches and reads nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, Literal

Stored = Literal["plain", "gzip", "tar", "unzipped"]
"""Stored form: as downloaded; compressed with gzip; a .tar.gz of some members of a folder; an unpacked zip or tar."""
_COMMIT = "[0-9a-f]{40}|main"
_ADDRESS = re.compile(rf"(hub|git):([\w.-]+/[\w.-]+)@({_COMMIT})/(.*)")
_OTHERS = re.compile(r"(https?|s3|gs|file)://.+")


@dataclass(frozen=True)
class Address:
    """``hub:REPO@COMMIT/FILE`` (a data set of the Hugging Face Hub), ``git:OWNER/REPO@COMMIT/FILE`` (GitHub), or a URL.
    The commit may be ``main`` if none is known; the served commit is then recorded."""

    kind: Literal["hub", "git", "url"]
    text: str
    repo: str = ""
    commit: str = ""
    file: str = ""
    """Path in the repository; empty or with a final slash for a folder."""

    @property
    def is_pinned(self) -> bool:
        """Whether the address names one commit."""
        return self.commit not in ("", "main")

    @property
    def uri(self) -> str:
        """The address as a URI for ``byte_stream.open_ranges``. A file of GitHub has none but its web address."""
        return f"hf://datasets/{self.repo}@{self.commit}/{self.file}" if self.kind == "hub" else self.text


def address(text: str) -> Address:
    """Parse ``hub:REPO@COMMIT/FILE``, ``git:OWNER/REPO@COMMIT/FILE`` or a URL. Raises ValueError for another form."""
    if match := _ADDRESS.fullmatch(text):
        kind, repo, commit, file = match.groups()
        return Address("hub" if kind == "hub" else "git", text, repo, commit, file)
    if _OTHERS.fullmatch(text):
        return Address("url", text)
    raise ValueError(
        f"address {text!r}: expected hub:OWNER/NAME@COMMIT/FILE, git:OWNER/NAME@COMMIT/FILE (40 hex digits, or main) "
        "or a URL"
    )


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches a glob pattern: ``*`` stays within one folder, ``**`` does not, ``{a,b}`` is a choice.
    A pattern that ends in a slash matches everything below that folder."""
    pattern = f"{pattern}**" if pattern.endswith("/") else pattern
    known = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]", "{": "(?:", ",": "|", "}": ")"}
    pieces = re.split(r"(\*\*/?|\*|\?|\[[^]]+\]|[{},])", pattern)
    expression = "".join(known.get(p, p) if i % 2 else re.escape(p) for i, p in enumerate(pieces))
    return re.fullmatch(expression, path) is not None


def fixed_part(pattern: str) -> str:
    """The part of a glob pattern (``matches``) before its first ``*``, ``?``, ``[`` or ``{``, else all of it."""
    return re.split(r"[*?\[{]", pattern)[0]


@dataclass(frozen=True)
class Source:
    """An external file (or archive) that a benchmark or a training set needs: where it comes from, its checksum,
    licence and terms, and in which form it is stored (plain, gzip, tar, unzipped)."""

    path: str
    """Path below the data folder."""
    url: str
    """An ``Address``; empty if ``by_hand`` is set."""
    sha256: str
    """Checksum of upstream's content, decompressed if stored with gzip; of a tar, that of ``making.tree_sum``. Empty if
    none is published: the first fetch records it, and later fetches must match."""
    size: int
    """Bytes of that content; of an unpacked archive: of the archive. An estimate without a checksum; 0: unknown."""
    licence: str
    terms: str = ""
    """Terms, in a sentence, that the user accepts with ``--accept FAMILY`` before the fetch; empty: none."""
    stored: Stored = "plain"
    members: tuple[str, ...] = ()
    """For a tar: the files and folders to take, relative to the address."""
    left_out: tuple[str, ...] = ()
    """For a tar: shell patterns of names to leave out."""
    by_hand: str = ""
    """Instructions for people, if no program can fetch the file."""
    lists_files: bool = False
    """Whether the file is a list of addresses of the set's files, one a line."""
    seen_in: int = 0
    """Number of independent places that publish this checksum; 0: computed from the project's own copy."""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.path)
        if not self.path or path.is_absolute() or ".." in path.parts or str(path) != self.path:
            raise ValueError(f"path {self.path!r} of a source: expected a plain path below the data folder")
        if self.sha256 and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"{self.path}: sha256 {self.sha256!r}: expected 64 hex digits, or nothing")
        if bool(self.url) == bool(self.by_hand):
            raise ValueError(f"{self.path}: expected either a url or by_hand")
        if self.url:
            parsed = address(self.url)
            if (self.stored == "tar") != (parsed.kind == "git" and (parsed.file.endswith("/") or not parsed.file)):
                raise ValueError(f"{self.path}: {self.url}: a folder is of git: and kept as a tar, nothing else is")

    @property
    def address(self) -> Address:
        return address(self.url)


def declared_sources(declared: Mapping[str, Any]) -> tuple[Source, ...]:
    """The files that a set in a TOML file (``toml_beside``) declares under ``sources``. Keys of the set hold for each
    file that lacks them. In place of a ``url`` a file may have ``file``, its path in the set's or its
    ``repository``."""
    known = {"repository", *(f.name for f in fields(Source))}
    shared = {"url": "", "sha256": "", "size": 0, **{key: value for key, value in declared.items() if key in known}}
    rows: list[dict[str, Any]] = [{**shared, **row} for row in declared.get("sources", ())]
    for row in rows:
        repository, file = row.pop("repository", ""), row.pop("file", None)
        row["url"] = row["url"] if file is None else f"{repository}/{file}"
    return tuple(Source(**row) for row in rows)


@dataclass(frozen=True)
class Stream:
    """A data set too large to store: its first rows are streamed into parquet files in a folder."""

    path: str
    """Path of the folder below the data folder."""
    url: str
    """``hub:REPO@COMMIT/PATTERN``; the pattern selects files."""
    size: int
    """Bytes of the whole set."""
    licence: str
    terms: str = ""

    @property
    def address(self) -> Address:
        return address(self.url)


@dataclass(frozen=True)
class DataSet:
    """Sources and streams that are fetched under one name. ``about``: a line of description."""

    name: str
    about: str
    sources: tuple[Source, ...] = ()
    streams: tuple[Stream, ...] = ()
    layouts: tuple[str, ...] = ()
    """Patterns of files below the data folder, with or without .gz, that the reader accepts instead of the sources."""
    withdrawn: str = ""
    """Why the set is no longer available, and what replaces it; empty: it is available."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns that hold the text, licence, language and origin of a document, for a corpus of the set."""

    @property
    def parts(self) -> tuple[Source | Stream, ...]:
        """Sources and streams."""
        return (*self.sources, *self.streams)

    @property
    def family(self) -> str:
        """The part of the name before the first slash, which ``--accept`` takes."""
        return self.name.partition("/")[0]


class MissingFiles(FileNotFoundError):
    """Raised if files of a data set are missing; the message says how to get them. names: paths below the data folder,
    one of which must exist, as they are or with .gz."""

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class FetchError(Exception):
    """Raised if a download fails for good; the message states why and what to do."""


def readable(size: int) -> str:
    """A size in bytes as text in decimal units (``1.5 GB``); ``size unknown`` for 0."""
    if not size:
        return "size unknown"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
