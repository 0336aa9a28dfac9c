"""Packs and unpacks file trees, and hashes and lists them; equal hashes prove a reset.

Packed form: one JSON line of entries ``[path, kind, mode, mtime, size or link target]``, then the joined contents.
Kinds: d folder, f file, l symbolic link; anything else (devices, pipes, sockets) is refused at packing."""

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path

Entry = tuple[str, str, int, int, int | str]
TreeEntry = tuple[str, str, int, str]
"""Path from the root, kind (d, f, l, or ? for all else), permission bits, SHA-256 of a file or a link's target."""
_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}


def pack(trees: list[tuple[str, Path]]) -> bytes:
    """Pack files of the host into bytes for ``unpack``. ``trees``: (absolute path inside, host folder or file) pairs;
    later ones overwrite earlier ones. Symbolic links are kept as links, owners are not recorded. Raises
    FileNotFoundError for a missing source, ValueError for a device, pipe or socket."""
    entries: list[Entry] = []
    contents: list[bytes] = []
    for inside, source in trees:
        top = inside.strip("/")
        if not source.exists():
            raise FileNotFoundError(f"tree for /{top}: {source} does not exist")
        _pack_one(top, source.resolve(), entries, contents)
    head = json.dumps(entries).encode()
    return b"".join([head, b"\n", *contents])


def _pack_one(name: str, path: Path, entries: list[Entry], contents: list[bytes]) -> None:
    info = path.lstat()
    mode, mtime = stat.S_IMODE(info.st_mode) & 0o777, int(info.st_mtime)
    if stat.S_ISLNK(info.st_mode):
        entries.append((name, "l", mode, mtime, os.readlink(path)))
    elif stat.S_ISREG(info.st_mode):
        data = path.read_bytes()
        entries.append((name, "f", mode, mtime, len(data)))
        contents.append(data)
    elif stat.S_ISDIR(info.st_mode):
        entries.append((name, "d", mode | 0o700, mtime, 0))
        for child in sorted(path.iterdir(), key=lambda p: p.name):
            _pack_one(f"{name}/{child.name}" if name else child.name, child, entries, contents)
    else:
        raise ValueError(f"{path} is neither file, folder nor link: a sandbox tree holds nothing else")


def unpack(packed: bytes, root: str) -> None:
    """Create the files, folders and links of ``packed`` (from ``pack``) below the folder ``root``, with modes and
    times. An existing file is overwritten; an existing link of the same name raises FileExistsError."""
    end = packed.index(b"\n")
    at = end + 1
    folders = []
    for name, kind, mode, mtime, detail in json.loads(packed[:end]):
        path = f"{root}/{name}" if name else root
        if kind == "d":
            os.makedirs(path, exist_ok=True)
            if name:
                folders.append((path, mode, mtime))
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "l":
            os.symlink(detail, path)
            os.utime(path, (mtime, mtime), follow_symlinks=False)
            continue
        with open(path, "wb") as file:
            file.write(packed[at : at + detail])
        at += detail
        os.chmod(path, mode)
        os.utime(path, (mtime, mtime))
    for path, mode, mtime in reversed(folders):
        os.chmod(path, mode)
        os.utime(path, (mtime, mtime))


class Work:
    """Budget of a walk over a tree, charged by ``one`` for every entry: ``content_bytes`` of files by their nominal
    size (holes cost no memory, but time to read), and ``cpu_s`` seconds of this thread's processor time."""

    def __init__(self, content_bytes: int, cpu_s: float) -> None:
        self.content_bytes, self._until = content_bytes, time.thread_time() + cpu_s

    def one(self, size: int = 0) -> None:
        """Charge one entry with ``size`` bytes of content. Raises OSError if the budget is exceeded."""
        self.content_bytes -= size
        if self.content_bytes < 0:
            raise OSError(errno.EFBIG, "files whose sizes come to more than a sandbox may hold")
        if time.thread_time() > self._until:
            raise OSError(errno.ETIME, "a tree that takes too long to be read")


def digest(root: str, work: Work | None = None) -> str:
    """SHA-256 (hex) over names, modes, contents and link targets of everything below ``root``; times are excluded, and
    mounted file systems count as a name only. ``work``: budget, whose excess raises OSError; None: no limit."""
    total = hashlib.sha256()
    for path, info, is_mount in _walk(root):
        name = os.fsencode(os.path.relpath(path, root))
        total.update(b"%d %s %o " % (len(name), name, info.st_mode))
        if is_mount:
            total.update(b"mount\n")
        elif stat.S_ISLNK(info.st_mode):
            total.update(os.fsencode(os.readlink(path)) + b"\n")
        elif stat.S_ISREG(info.st_mode):
            if work:
                work.one(info.st_size)
            total.update(_content(path))
    return total.hexdigest()


def entries(root: str, left_out: list[str], work: Work, most_bytes: int) -> list[TreeEntry]:
    """Entries below ``root`` as (absolute path with ``root`` as /, kind, permission bits, content hash or link target),
    unordered. Top-level names in ``left_out`` and the content of mounted file systems are omitted. Raises OSError if
    ``work`` is exceeded, or paths, hashes and link targets have more than ``most_bytes`` characters together."""
    listed: list[TreeEntry] = []
    size = 0
    for place, info, _ in _walk(root, left_out):
        path = "/" + os.path.relpath(place, root)
        kind, content = _KINDS.get(stat.S_IFMT(info.st_mode), "?"), ""
        if kind == "l":
            content = os.readlink(place)
        elif kind == "f":
            work.one(info.st_size)
            content = _content(place).hex()
        work.one()
        size += len(path) + len(content)
        if size > most_bytes:
            raise OSError(errno.E2BIG, f"a listing of more than {most_bytes} bytes")
        listed.append((path, kind, stat.S_IMODE(info.st_mode), content))
    return listed


def _walk(root: str, left_out: Collection[str] = ()) -> Iterator[tuple[str, os.stat_result, bool]]:
    """(path, status, whether another file system begins there) of everything below ``root``, each folder by name."""
    device = os.lstat(root).st_dev
    pending = [root]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as scanned:
            children = sorted(scanned, key=lambda child: child.name)
        for child in children:
            if folder == root and child.name in left_out:
                continue
            info = child.stat(follow_symlinks=False)
            is_mount = info.st_dev != device
            if stat.S_ISDIR(info.st_mode) and not is_mount:
                pending.append(child.path)
            yield child.path, info, is_mount


def _content(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
