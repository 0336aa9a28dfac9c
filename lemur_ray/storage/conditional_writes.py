"""Conditional writes (compare-and-swap) to objects in a bucket, the basis of agreement between hosts.

An object has a version (Google's generation, the ETag of S3), and ``write_if`` names the version to replace. If a
response is lost, the client's retry conflicts with its first attempt. Content must therefore be unique to its writer
(it holds an id), and is read back before a conflict is reported. A file on a disk has the hash of its content as
version; a write locks its folder, which works on one machine and on network file systems that pass locks on."""

import contextlib
import hashlib
import os
import threading
import uuid
from pathlib import Path
from typing import Any

from fsspec import asyn

from lemur_ray.host import file_lock
from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.storage.published_folder import replaced_file


class VersionConflict(Exception):
    """Raised if a conditional write failed since the object has another version: another writer was first."""


def read_version(url: str) -> tuple[bytes, str] | None:
    """(content, version) of the object at ``url``, None if it does not exist. Raises OSError if access fails."""
    fs, path = file_system(url)
    try:
        return _client(url).read(fs, path)
    except FileNotFoundError:
        return None


def write_if(url: str, data: bytes, version: str | None) -> str:
    """Replace ``version`` of the object at ``url``, or create the object (None); returns the new version. Raises
    VersionConflict if the object has another version and other content than ``data``, OSError if the bucket does not
    answer; then the object may or may not have been written."""
    fs, path = file_system(url)
    try:
        return _client(url).write(fs, path, data, version)
    except VersionConflict:
        now = read_version(url)
        if now is not None and now[0] == data:
            return now[1]
        raise


def append_if(url: str, data: bytes, version: str | None, size: int) -> str:
    """Append to ``version`` of the object at ``url``, of ``size`` bytes, or create it (None); returns the new version.
    A ``gs://`` service is sent ``data`` alone and joins it to the object, which gets a new version also if ``data`` is
    empty; other services are sent the whole object. Raises VersionConflict if the object has another version, OSError
    if the bucket does not answer."""
    fs, path = file_system(url)
    if version is None or _client(url) is not _Google:
        before = read_version(url) if version is not None else (b"", None)
        if before is None or before[1] != version:
            raise VersionConflict(path)
        return write_if(url, before[0] + data, version)
    try:
        return _Google.append(fs, path, data, version)
    except VersionConflict:  # or the response to a first attempt was lost
        now = read_version(url)
        if now is not None and len(now[0]) == size + len(data) and now[0].endswith(data):
            return now[1]
        raise


def copy_if(source: str, version: str, url: str) -> None:
    """Copy the object ``source`` to ``url`` in the same ``gs://`` bucket if ``source`` still has ``version``. The
    service compares and copies in one step. Raises VersionConflict if ``source`` has another version, OSError."""
    fs, path = file_system(url)
    bucket, key, _ = fs.split_path(path)
    name = fs.split_path(file_system(source)[1])[1]
    sources = [{"name": name, "objectPreconditions": {"ifGenerationMatch": version}}]
    try:
        fs.call("POST", "b/{}/o/{}/compose", bucket, key, json={"sourceObjects": sources}, json_out=True)
    except (FileExistsError, FileNotFoundError) as error:
        raise VersionConflict(source) from error


def remove_unjoined(url: str) -> None:
    """Remove temporary objects that killed writers left next to the object ``url`` in ``append_if``. Only if no earlier
    writer can append any more: data of a running append would be removed, too. Raises OSError if the bucket fails."""
    if _client(url) is _Google:
        fs, path = file_system(url)
        folder, _, name = path.rpartition("/")
        for part in fs.find(folder, prefix=f"{name}.part-"):
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(part)


class _Google:
    @classmethod
    def append(cls, fs: Any, path: str, data: bytes, version: str) -> str:
        """Upload the new part as an object of its own, then compose; Google limits neither parts nor their number."""
        bucket, key, _ = fs.split_path(path)
        part, sources = f"{path}.part-{uuid.uuid4().hex[:12]}", [{"name": key, "generation": version}]
        if data:
            sources.append({"name": fs.split_path(part)[1], "generation": cls.write(fs, part, data, None)})
        try:
            made = fs.call(
                "POST", "b/{}/o/{}/compose", bucket, key, ifGenerationMatch=version, json_out=True,
                json={"sourceObjects": sources, "destination": {"contentType": "application/octet-stream"}},
            )  # fmt: skip
        except (FileExistsError, FileNotFoundError) as error:
            raise VersionConflict(path) from error
        finally:
            if data:
                with contextlib.suppress(OSError):
                    fs.rm_file(part)
        return str(made["generation"])

    @staticmethod
    def read(fs: Any, path: str) -> tuple[bytes, str]:
        headers, data = fs.call("GET", fs.url(path))
        return bytes(data), str(headers["X-Goog-Generation"])

    @staticmethod
    def write(fs: Any, path: str, data: bytes, version: str | None) -> str:
        bucket, key, _ = fs.split_path(path)
        where = f"{fs._location}/upload/storage/v1/b/{bucket}/o"
        try:
            made = fs.call(
                "POST", where, uploadType="media", name=key, ifGenerationMatch=version or "0", data=data,
                headers={"Content-Type": "application/octet-stream"}, json_out=True,
            )  # fmt: skip
        except (FileExistsError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and version is None:
                raise  # no bucket
            raise VersionConflict(path) from error
        return str(made["generation"])


class _Amazon:
    @staticmethod
    def read(fs: Any, path: str) -> tuple[bytes, str]:
        bucket, key, _ = fs.split_path(path)
        stored: tuple[bytes, str] = asyn.sync(fs.loop, fs.read_version, bucket, key)
        return stored

    @staticmethod
    def write(fs: Any, path: str, data: bytes, version: str | None) -> str:
        bucket, key, _ = fs.split_path(path)
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            return str(fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)["ETag"])
        except (FileExistsError, OSError) as error:
            code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "")
            refused = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
            if isinstance(error, FileExistsError) or code in refused or (version and code == "NoSuchKey"):
                raise VersionConflict(path) from error
            raise


class _OneProcess:
    """Reads and writes on any other file system, mainly ``memory://``: atomic among threads of one process only."""

    _lock = threading.Lock()

    @staticmethod
    def read(fs: Any, path: str) -> tuple[bytes, str]:
        data = bytes(fs.cat_file(path))
        return data, hashlib.sha256(data).hexdigest()

    @classmethod
    def write(cls, fs: Any, path: str, data: bytes, version: str | None) -> str:
        with cls._lock:
            if (cls.read(fs, path)[1] if fs.exists(path) else None) != version:
                raise VersionConflict(path)
            fs.pipe_file(path, data)
            return hashlib.sha256(data).hexdigest()


class _Disk:
    read = _OneProcess.read

    @classmethod
    def write(cls, fs: Any, path: str, data: bytes, version: str | None) -> str:
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                file_lock.take(folder, wait_s=None)
            if (cls.read(fs, path)[1] if fs.exists(path) else None) != version:
                raise VersionConflict(path)
            with replaced_file(Path(path)) as new, new.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        finally:
            os.close(folder)
        return hashlib.sha256(data).hexdigest()


def _client(url: str) -> Any:
    if not is_bucket(url):
        return _Disk
    return {"gs": _Google, "gcs": _Google, "s3": _Amazon}.get(url.partition("://")[0], _OneProcess)
