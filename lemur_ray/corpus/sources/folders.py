"""Sources of a corpus: list the files in a folder or bucket of the user, and draw a sample of files by size.

Only names and sizes of files are read, not their content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from lemur_ray.corpus.documents import Kind
from lemur_ray.corpus.filters import MAX_BYTES
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.sources.texts import FileRef
from lemur_ray.storage.file_system import file_system, is_bucket

_VERSIONS = ("generation", "ETag", "etag", "md5Hash", "created")
"""Keys under which bucket clients report the version of an object, in order of preference."""

LANGUAGES = {
    ".py": "python", ".pyi": "python", ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hh": "cpp",
    ".hpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".sh": "shell", ".bash": "shell", ".js": "javascript",
    ".mjs": "javascript", ".sql": "sql", ".java": "java", ".php": "php", ".go": "go", ".rs": "rust", ".rb": "ruby",
    ".ts": "typescript", ".pl": "perl", ".r": "r", ".lua": "lua", ".ipynb": "notebook",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A named source of documents (code or text) and its files, sorted by name."""

    name: str
    kind: Kind
    files: tuple[FileRef, ...]
    looked_for: str
    """Description of the expected files and their location, for error messages."""
    required: bool = True
    """Whether a build without any document of this source is an error."""


def walk(root: str) -> Iterator[os.DirEntry[str]]:
    """Regular files below a folder in sorted order; skips links, hidden folders, __pycache__ and unreadable folders."""
    try:
        with os.scandir(root) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in ordered:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name != "__pycache__":
                    yield from walk(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry
        except OSError:
            continue


def folder_source(spec: str) -> Source:
    """Parse ``NAME:KIND:PATH`` and list its files: PATH is a .jsonl(.gz), .parquet or text file, a folder, or a URL.

    Raises CorpusError on a malformed spec, a missing or unreadable path, and a folder without files.
    """
    name, _, rest = spec.partition(":")
    kind, _, path = rest.partition(":")
    kinds = get_args(Kind)[:2]
    if not name.replace("_", "").replace("-", "").isalnum() or kind not in kinds or not path:
        raise CorpusError(f"source {spec!r}: expected NAME:KIND:PATH with KIND one of {', '.join(kinds)}")
    if name.startswith("heldout"):
        raise CorpusError(f"source name {name!r}: names that begin with heldout are the held-out rows'; choose another")
    if is_bucket(path):
        return _bucket_source(name, "code" if kind == "code" else "text", path)
    root = Path(path).expanduser().absolute()
    looked_for = f"text files, .jsonl, .jsonl.gz and .parquet in {root}"
    if not root.exists():
        raise CorpusError(f"source {name}: {root} does not exist; looked for {looked_for}")
    if not os.access(root, os.R_OK | (os.X_OK if root.is_dir() else 0)):
        raise CorpusError(f"source {name}: {root} cannot be read by this user; looked for {looked_for}")
    files = [root] if root.is_file() else [Path(entry.path) for entry in walk(str(root))]
    if not files:
        raise CorpusError(f"source {name}: {root} is empty; looked for {looked_for}")
    refs = tuple(_user_file(file, root) for file in files)
    return Source(name, "code" if kind == "code" else "text", refs, looked_for)


def _bucket_source(name: str, kind: Kind, url: str) -> Source:
    """Source with all objects below a URL, in the order of ``walk``. Raises CorpusError if none or not listable."""
    looked_for = f"text files, .jsonl, .jsonl.gz and .parquet in {url}"
    try:
        fs, root = file_system(url.rstrip("/"))
        objects = fs.find(root, detail=True)
    except (ImportError, OSError, ValueError) as error:
        raise CorpusError(f"source {name}: {url} cannot be listed: {error}; looked for {looked_for}") from error
    refs = []
    scheme = url.partition("://")[0]
    for path, about in sorted(objects.items(), key=lambda item: item[0].split("/")):
        inner = path.removeprefix(root).lstrip("/") or path.rsplit("/", 1)[-1]
        if about.get("type") != "file" or any(p.startswith(".") or p == "__pycache__" for p in inner.split("/")[:-1]):
            continue
        version = next((str(about[key]) for key in _VERSIONS if about.get(key)), "")
        refs.append(_file(f"{scheme}://{path}", int(about["size"]), inner, version))
    if not refs:
        raise CorpusError(f"source {name}: {url} is empty or not there; looked for {looked_for}")
    return Source(name, kind, tuple(refs), looked_for)


def _user_file(file: Path, root: Path) -> FileRef:
    return _file(str(file), file.stat().st_size, file.name if file == root else str(file.relative_to(root)))


def _file(path: str, size: int, name: str, version: str = "") -> FileRef:
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    reader = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}.get(suffix, "file")
    return FileRef(path, size, reader, name, language=LANGUAGES.get(suffix, ""), version=version)


def sample(refs: Sequence[FileRef], budget_bytes: float, seed: int, bytes_per_byte: float = 1.0) -> list[FileRef]:
    """A seeded subset of about ``budget_bytes`` of text, sorted by name; all files if they fit.

    Files are drawn in the order of a hash of (seed, name), so the subset does not depend on their location; files above
    1 MiB or a quarter of the budget are skipped. ``bytes_per_byte``: bytes of text per byte on disk.
    """
    if sum(ref.size for ref in refs) * bytes_per_byte <= budget_bytes:
        return sorted(refs, key=lambda ref: ref.name)

    def rank(ref: FileRef) -> bytes:
        return hashlib.blake2b(f"{seed}/{ref.name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    chosen, total = [], 0.0
    for ref in sorted(refs, key=lambda ref: (rank(ref), ref.name)):
        if total >= budget_bytes:
            break
        if ref.size <= MAX_BYTES and (ref.size * bytes_per_byte <= budget_bytes / 4 or len(refs) == 1):
            chosen.append(ref)
            total += ref.size * bytes_per_byte
    return sorted(chosen, key=lambda ref: ref.name)


def with_language(refs: Sequence[FileRef], language: str) -> list[FileRef]:
    """Copies of the file references with ``language`` set."""
    return [replace(ref, language=language) for ref in refs]
