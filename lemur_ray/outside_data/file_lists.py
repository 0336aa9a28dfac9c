"""Lists the files of a remote data set: of the Hub, of a bucket, or at web addresses. Reads no content but lists."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lemur_ray.outside_data.byte_stream import ByteStream, object_version, open_ranges, patiently, read_all
from lemur_ray.outside_data.source import fixed_part, matches
from lemur_ray.storage.file_system import file_system

_AT_ONCE = 16
"""Number of web addresses that are asked for their size in parallel."""
_LIST_BYTES = 64 << 20
"""Maximum size of a list of addresses."""


@dataclass(frozen=True)
class RemoteFile:
    """A listed file. ``uri``: with the commit on the Hub; ``name``: path below the listed folder; ``size``: bytes;
    ``version``: empty if unknown."""

    uri: str
    name: str
    size: int
    version: str


def list_files(uri: str) -> list[RemoteFile]:
    """Files of a URI, a folder or a glob pattern (``*`` within a folder, ``**`` across), sorted by name.
    ``hf://datasets/OWNER/NAME[@REVISION]/PATTERN``, ``gs://``, ``s3://``, or one ``https://`` file. Hidden folders and
    __pycache__ are skipped. A revision of the Hub is resolved once. Raises ReadFailure, with what to do about a gated
    set or a revision that is gone; OSError if the storage fails, ValueError for an invalid URI, ImportError if the
    bucket's client is not installed."""
    if uri.startswith("hf://"):
        return _hub_files(uri)
    if uri.startswith(("http://", "https://")):
        with ByteStream(uri) as file:
            return [RemoteFile(uri, uri.partition("?")[0].rsplit("/", 1)[-1], file.size, file.version)]
    return _bucket_files(uri)


def list_addresses(uris: str) -> list[RemoteFile]:
    """List the files whose addresses are in the text file ``uris`` (path or URI), one per line; # begins a comment.
    Raises ReadFailure if it cannot be read, and as ``list_files``."""
    lines = [line.strip() for line in read_all(uris, _LIST_BYTES).decode().splitlines()]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        listed = threads.map(list_files, [line for line in lines if line and not line.startswith("#")])
        return [file for files in listed for file in files]


def _hub_files(uri: str) -> list[RemoteFile]:
    from lemur_ray.outside_data.hub import hub_address, list_hub_files  # a second to import, for the Hub only

    pattern = hub_address(uri).file
    files = patiently(lambda: list_hub_files(uri), uri, "listing")
    if files:  # a gated set is listed for everybody and read by few
        patiently(lambda: open_ranges(*files[0]), uri, "the first file").close()
    fixed = fixed_part(pattern).rpartition("/")[0]
    prefix = f"{fixed}/" if fixed else ""
    names = [re.sub(r"hf://datasets/[^/]+/[^/]+/", "", path).removeprefix(prefix) for path, _, _ in files]
    return [RemoteFile(path, name, size, tag) for (path, size, tag), name in zip(files, names, strict=True)]


def _bucket_files(uri: str) -> list[RemoteFile]:
    uri, scheme = uri.rstrip("/"), uri.partition("://")[0]
    fixed = fixed_part(uri)
    folder = uri if fixed == uri else fixed.rpartition("/")[0]
    fs, root = file_system(folder)
    objects = patiently(lambda: fs.find(root, detail=True), uri, "listing")
    pattern = "**" if folder == uri else uri[len(folder) + 1 :]
    files = []
    for path, about in sorted(objects.items(), key=lambda item: item[0].split("/")):
        inner = path.removeprefix(root).lstrip("/")
        hidden = any(p.startswith(".") or p == "__pycache__" for p in inner.split("/")[:-1])
        if about.get("type") == "file" and not hidden and (not inner or matches(inner, pattern)):
            version = object_version(about) or str(about.get("created") or "")
            name = inner or path.rsplit("/", 1)[-1]
            files.append(RemoteFile(f"{scheme}://{path}", name, int(about["size"]), version))
    return files
