"""A local folder that is synchronised with a bucket folder: downloaded first, uploaded while it changes.

One process uses it at a time (``bucket_lease``). Essential data is in files that only grow (``growing_file``), which
are uploaded every few seconds; all other files derive from them and are uploaded every minute and at the end. Local
files are never older than the bucket, so an unreachable bucket loses nothing."""

import contextlib
import math
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.host.exit_codes import ExitCode, exit_code_of
from lemur_ray.storage import bucket_lease
from lemur_ray.storage.bucket_lease import BucketLease, LeaseConflict, describe_holder
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.folder_mirror import download_file
from lemur_ray.storage.growing_file import GrowingFile, assemble, list_growing_files, starts_with_pieces
from lemur_ray.storage.heartbeat import run_heartbeat
from lemur_ray.storage.published_folder import work_folder
from lemur_ray.storage.retry_policy import missing_bucket_error, request_timeout_s

LARGE_BYTES = 2**23
"""Size above which a file is uploaded in parts, which no condition protects."""
REST_S = 60.0
"""Seconds between two uploads of derived files."""


class SyncError(OSError):
    """Raised if a folder cannot be synchronised with its bucket; the message gives the reason."""

    exit_code: ExitCode | None = None

    @classmethod
    def of(cls, exit_code: ExitCode, message: str) -> "SyncError":
        """An error that knows the exit code of the job that it ends."""
        error = cls(message)
        error.exit_code = exit_code
        return error


class _MissingLines(Exception):
    """A growing file in the bucket has lines that its local file lacks; the message names the file."""


@contextlib.contextmanager
def sync_with_bucket(
    url: str, growing: str, small: Sequence[str], join: Callable[[Path, Path], None]
) -> Iterator[Path]:
    """Context manager: yields the local folder for the bucket folder ``url`` (always the same) for the block to work
    in. Growing and small files of the bucket are downloaded to it first, other files are not. Files that change there
    are uploaded regularly during the block, and at its end; hidden files and deletions are not.

    growing: name of the files that only grow, at any depth. small: names of files that belong to them; those of the
    bucket replace local ones. join: function that appends to the second file the records that only the first has (for
    a host that resumes after others).

    Raises SyncError if the bucket cannot be written at the start or is unreachable for too long later, or if another
    process has the lease or takes it over; a block that has begun is then interrupted, in the main thread, as by
    Ctrl-C. If the block raises, growing and small files are uploaded as far as possible."""
    mine = {"id": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()}
    folder, every_s = work_folder(url), bucket_lease.HEARTBEAT_S
    lease = BucketLease(url, mine)
    try:
        lease.take(bucket_lease.MISSED_HEARTBEATS * every_s)
    except LeaseConflict as other:
        raise SyncError.of(
            ExitCode.TRY_AGAIN,
            f"{url} is being written by another run ({describe_holder(other.holder)}): wait for it, end it, "
            "or choose another --out",
        ) from None
    except FileNotFoundError as error:
        raise SyncError(str(missing_bucket_error(url))) from error
    except (ImportError, OSError, ValueError) as error:
        raise SyncError(f"{url} cannot be written from here: {' '.join(str(error).split())}") from error
    here = _FolderSync(url, folder, growing, small, lease, mine)
    try:
        with run_heartbeat(here.beat, every_s):
            here.restore(join)
            with here.upload_on_error():
                yield folder
            here.store_all()
    finally:
        here.give_back()


class _FolderSync:
    def __init__(
        self, url: str, folder: Path, growing: str, small: Sequence[str], lease: BucketLease, mine: dict[str, Any]
    ) -> None:
        self._url, self._folder, self._growing, self._small = url, folder, growing, tuple(small)
        self._lease, self._mine = lease, mine
        self._fs, self._there = file_system(url)
        self._lock = threading.Lock()
        self._files: dict[str, GrowingFile] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        self._versions: dict[str, str | None] = {}
        self._restored = self._broken = False
        self._success_s = self._renewal_s = time.monotonic()
        self._upload_s = -math.inf

    def restore(self, join: Callable[[Path, Path], None]) -> None:
        """Download growing and small files of the bucket; lines that only the local copies have are appended."""
        with self._as_sync_error():  # heartbeats only renew the lease until this is done
            growing, whole = list_growing_files(self._url, self._growing)
            for name in growing:
                file = self._files[name] = self._file(name)
                if not starts_with_pieces(file.path, file.pieces):
                    with _renewed(file.path, join) as new:
                        assemble(file.url, file.pieces, new)
            for name in whole:
                path, url = self._folder / name, f"{self._url}/{name}"
                if path.name == self._growing and name not in growing:  # uploaded by hand
                    with _renewed(path, join) as new:
                        download_file(url, new)
                elif path.name in self._small:
                    download_file(url, path)
            for path in sorted(self._folder.rglob(self._growing)):
                if path.relative_to(self._folder).as_posix() not in {*growing, *whole}:
                    notice = f"{path} is not in {self._url} yet and is stored there: remove it to begin anew"
                    print(notice, file=sys.stderr, flush=True)
            self._restored = True

    def beat(self) -> None:
        """Renew the lease and upload changes. Raises SyncError if the lease is lost or the bucket fails for long."""
        with self._lock:
            if self._broken:
                return
            try:
                self._renew()
                if self._restored:
                    self._store(everything=time.monotonic() - self._upload_s > REST_S)
                self._success_s = time.monotonic()
            except (LeaseConflict, _MissingLines) as other:
                raise self._ended(other) from None
            except OSError as error:
                if time.monotonic() - self._success_s > request_timeout_s() / 2:
                    raise self._ended(error) from error

    @contextlib.contextmanager
    def upload_on_error(self) -> Iterator[None]:
        """Context manager: if the block raises, upload growing and small files as far as possible."""
        try:
            yield
        except BaseException:
            try:
                with self._lock, self._as_sync_error():
                    if self._restored and not self._broken:
                        self._store(everything=False)
            except SyncError as error:
                print(error, file=sys.stderr, flush=True)
            raise

    def store_all(self) -> None:
        """Upload all files, and each growing file also as one object, for other programs. Raises SyncError."""
        with self._lock, self._as_sync_error():
            self._store(everything=True)
            self._renew()
            for name, file in self._files.items():
                if file.path.is_file():
                    self._fs.put_file(str(file.path), f"{self._there}/{name}")
                    self._renew_if_due()

    def give_back(self) -> None:
        if not self._broken:
            with contextlib.suppress(OSError, LeaseConflict):
                self._lease.give_back()

    @contextlib.contextmanager
    def _as_sync_error(self) -> Iterator[None]:
        """Context manager that turns errors of the bucket into SyncError and stops all uploads."""
        try:
            yield
        except (OSError, LeaseConflict, _MissingLines) as error:
            raise self._ended(error) from error

    def _ended(self, error: OSError | LeaseConflict | _MissingLines) -> SyncError:
        self._broken = True
        if isinstance(error, LeaseConflict):
            return SyncError.of(
                ExitCode.OVERTAKEN,
                f"{self._url} could not be reached for a while and was taken over by another run "
                f"({describe_holder(error.holder)}): this one stops; what it has ended is in {self._folder}",
            )
        return SyncError.of(
            ExitCode.TRY_AGAIN if isinstance(error, _MissingLines) else exit_code_of(error),
            f"{' '.join(str(error).split())}; what has ended is kept in {self._folder}, and the same command stores it",
        )

    def _file(self, name: str) -> GrowingFile:
        return GrowingFile(f"{self._url}/{name}", self._folder / name, self._lease.number, self._mine)

    def _store(self, *, everything: bool) -> None:
        files = {path.relative_to(self._folder).as_posix(): path for path in _visible_files(self._folder)}
        for name, path in files.items():
            if path.name != self._growing and (everything or path.name in self._small):
                self._put(path, name)
        self._upload_s = time.monotonic() if everything else self._upload_s
        for name in [name for name, path in files.items() if path.name == self._growing]:
            path = files[name]
            if name not in self._files:
                file = self._file(name)
                if not starts_with_pieces(path, file.pieces):  # the first listing was outdated
                    raise _MissingLines(f"{self._url}/{name} has lines that were not there when this host began")
                self._files[name] = file
            while self._files[name].upload_next():
                self._renew_if_due()

    def _put(self, path: Path, name: str) -> None:
        """Upload one file if it has changed since its last upload."""
        try:
            stamp = (path.stat().st_mtime_ns, path.stat().st_size)
            if path.is_file() and self._stored.get(name) != stamp:
                if stamp[1] > LARGE_BYTES:
                    self._renew()
                    self._fs.put_file(str(path), f"{self._there}/{name}")
                else:
                    self._replace(path.read_bytes(), name)
                self._stored[name] = stamp
                self._renew_if_due()
        except FileNotFoundError:
            if path.exists():  # then the bucket is missing, not the file
                raise

    def _replace(self, data: bytes, name: str) -> None:
        """Write one object; a host that lost its lease conflicts with what the next one has written there."""
        url = f"{self._url}/{name}"
        while True:
            try:
                if name not in self._versions:
                    stored = read_version(url)
                    self._versions[name] = stored[1] if stored else None
                    self._renew()
                self._versions[name] = write_if(url, data, self._versions[name])
                return
            except VersionConflict:
                del self._versions[name]

    def _renew_if_due(self) -> None:
        if time.monotonic() - self._renewal_s > bucket_lease.HEARTBEAT_S:
            self._renew()

    def _renew(self) -> None:
        self._lease.renew()
        self._renewal_s = time.monotonic()


@contextlib.contextmanager
def _renewed(path: Path, join: Callable[[Path, Path], None]) -> Iterator[Path]:
    """Path of a new file that replaces ``path`` after the block, joined with records that only the old file has."""
    new = path.with_name(f".{path.name}.new")
    new.parent.mkdir(parents=True, exist_ok=True)
    new.unlink(missing_ok=True)
    yield new
    if path.is_file():
        join(path, new)
    new.replace(path)


def _visible_files(folder: Path) -> list[Path]:
    """Files of a folder and its subfolders in order, without hidden ones; folders may vanish meanwhile."""
    files: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(root, name) for name in names if not name.startswith(".")]
    return sorted(files)
