"""Sources of a corpus: list the files of a folder, bucket, remote set or set of the catalogue, and sample them by size.

Only names and sizes of files are read, not their content."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lemur_ray.corpus.cleaning.filters import MAX_BYTES
from lemur_ray.corpus.documents import Kind
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.specs import CATALOGUE, CorpusError, SourceSpec, parse_source
from lemur_ray.host.home import lemur_home, outside_data
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.checking import is_there
from lemur_ray.outside_data.file_lists import list_addresses, list_files
from lemur_ray.outside_data.required import how_to_have
from lemur_ray.outside_data.source import fixed_part, matches
from lemur_ray.storage.file_system import is_bucket

MAX_BOOK_BYTES = 64 << 20
"""Maximum length of a text of a source with the filters for books."""

LANGUAGES = {
    ".py": "python", ".pyi": "python", ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hh": "cpp",
    ".hpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".sh": "shell", ".bash": "shell", ".js": "javascript",
    ".mjs": "javascript", ".sql": "sql", ".java": "java", ".php": "php", ".go": "go", ".rs": "rust", ".rb": "ruby",
    ".ts": "typescript", ".pl": "perl", ".r": "r", ".lua": "lua", ".ipynb": "notebook",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A source of documents (code or text), its files sorted by name, and the user's specification, if any."""

    name: str
    kind: Kind
    files: tuple[FileRef, ...]
    looked_for: str
    """Description of the expected files and their location, for error messages."""
    required: bool = True
    """Whether a build without any document of this source is an error."""
    spec: SourceSpec | None = None
    """Specification of the user, if any: filters, tokens wanted, licences."""
    read_factor: float = 1.0
    """Multiple of the bytes that usually have the tokens wanted; more once too few were left of these."""


def walk(root: str, strict: bool = False) -> Iterator[os.DirEntry[str]]:
    """Yield the regular files below a folder in sorted order; skips links, hidden folders and __pycache__. Nothing for
    a folder that does not exist. strict: raise OSError for a folder that cannot be read, which is skipped otherwise."""
    try:
        with os.scandir(root) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        if strict:
            raise
        return
    for entry in ordered:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name != "__pycache__":
                    yield from walk(entry.path, strict)
            elif entry.is_file(follow_symlinks=False):
                yield entry
        except OSError:
            if strict:
                raise
            continue


def folder_source(text: str) -> Source:
    """The source that ``NAME:KIND:PATH`` describes, with its files listed but not read. Raises CorpusError for any
    other form, and for what ``list_source`` refuses."""
    return list_source(parse_source(text))


def catalogue_source(spec: SourceSpec) -> SourceSpec:
    """Replace ``catalogue:NAME`` in a specification by address, columns and licence of the data set NAME; any other
    specification is returned unchanged.
    A set that ``fetch_data.py`` stores as files is read from the folder of outside data sets; a large one is streamed
    from its commit on the Hub. Raises CorpusError for an unknown, withdrawn or absent set, or terms not accepted."""
    if not spec.uri.startswith(CATALOGUE):
        return spec
    name = spec.uri.removeprefix(CATALOGUE)
    known = {one.name: one for one in TRAINING if any(part.path.startswith("corpus/") for part in one.parts)}
    withdrawn = {one.name: one.withdrawn for one in TRAINING if one.withdrawn}
    if name not in known:
        reason = withdrawn.get(name) or f"unknown; the catalogue has {', '.join(known)}"
        raise CorpusError(f"source {spec.name}: data set {name}: {reason}")
    data_set = known[name]
    terms = next((part.terms for part in data_set.parts if part.terms), "")
    if terms and not spec.accept_terms:
        raise CorpusError(f"source {spec.name}: terms to accept first: {terms}. Add accept_terms: true to the source")
    fields = {**data_set.fields, **spec.fields}
    licence = spec.licence or data_set.parts[0].licence
    spec = replace(spec, fields=fields, licence=licence)
    if data_set.streams:
        return replace(spec, uri=data_set.streams[0].address.uri)
    (file,) = data_set.sources
    if file.lists_files:
        return replace(spec, uri="", urls=file.address.uri)
    data = outside_data(os.environ.get("LEMUR_DATA", "")) or lemur_home() / "data"
    if not is_there(file, data):
        raise CorpusError(f"source {spec.name}: {how_to_have(file, name, data)}")
    return replace(spec, uri=str(data / file.path))


def list_source(spec: SourceSpec) -> Source:
    """List the files of a source; reads none of them. Raises CorpusError for a missing, unreadable or empty path, a
    gated set, a removed revision, or terms not accepted."""
    spec = catalogue_source(spec)
    place = spec.place
    looked_for = f"text files, .jsonl and .parquet, also compressed, in {place}"
    try:
        if spec.urls or is_bucket(place):
            files = list_addresses(place) if spec.urls else list_files(place)
            refs = [_file(spec, file.uri, file.size, file.name, file.version) for file in files]
        else:
            refs = _local_files(spec, Path(place).expanduser().absolute(), looked_for)
    except (ImportError, OSError, ValueError) as error:
        raise CorpusError(f"source {spec.name}: {place} cannot be listed: {error}; looked for {looked_for}") from error
    if not refs:
        raise CorpusError(f"source {spec.name}: {place} is empty or not there; looked for {looked_for}")
    kind: Kind = "code" if spec.kind == "code" else "text"
    return Source(spec.name, kind, tuple(refs), looked_for, spec.required, spec)


def _local_files(spec: SourceSpec, root: Path, looked_for: str) -> list[FileRef]:
    if (fixed := fixed_part(str(root))) != str(root) and not root.exists():
        top = Path(fixed.rpartition("/")[0])
        files = [entry.path for entry in walk(str(top), strict=True) if matches(entry.path, str(root))]
        return [_local_file(spec, Path(file), top) for file in files]
    if not root.exists():
        raise CorpusError(f"source {spec.name}: {root} does not exist; looked for {looked_for}")
    if not os.access(root, os.R_OK | (os.X_OK if root.is_dir() else 0)):
        raise CorpusError(f"source {spec.name}: {root} cannot be read by this user; looked for {looked_for}")
    paths = [root] if root.is_file() else [Path(entry.path) for entry in walk(str(root), strict=True)]
    if not paths:
        raise CorpusError(f"source {spec.name}: {root} is empty; looked for {looked_for}")
    return [_local_file(spec, path, root) for path in paths]


def _local_file(spec: SourceSpec, file: Path, root: Path) -> FileRef:
    return _file(spec, str(file), file.stat().st_size, file.name if file == root else str(file.relative_to(root)))


def _file(spec: SourceSpec, path: str, size: int, name: str, version: str = "") -> FileRef:
    suffix = Path(name.removesuffix(".gz").removesuffix(".zst")).suffix.lower()
    reader = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}.get(suffix, "file")
    if reader == "file" and spec.fields:
        reader = "jsonl"  # a source with named columns has records, whatever the name of the file
    return FileRef(
        path, size, reader, name, spec.licence, spec.language or LANGUAGES.get(suffix, ""), version, spec.fields,
        spec.licences, MAX_BOOK_BYTES if spec.filter_set == "book" else MAX_BYTES,
    )  # fmt: skip


def sample(refs: Sequence[FileRef], budget_bytes: float, seed: int, bytes_per_byte: float = 1.0) -> list[FileRef]:
    """A seeded subset of about ``budget_bytes`` of text, sorted by name; all files if they fit.
    Files are drawn in the order of a hash of (seed, name), so the subset does not depend on their location; files above
    1 MiB or a quarter of the budget are skipped. ``bytes_per_byte``: bytes of text per byte on disk."""
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
