"""The fsspec file system of ``gs://``: gcsfs with timeouts and errors that advise the user, without a listing cache.

Listings are not cached because other hosts may write at any moment."""

import contextlib
import logging
import os
from typing import Any

import aiohttp
from fsspec.asyn import sync_wrapper
from fsspec.spec import make_instance
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError
from google.auth.exceptions import GoogleAuthError

from lemur_ray.storage.file_system import COMMIT_MARKER, FOLDERS
from lemur_ray.storage.retry_policy import (
    BucketError,
    BucketProblem,
    credentials_error,
    idle_timeout_s,
    refusal_error,
    with_deadline,
)

if not os.environ.get("GCSFS_DEBUG"):
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it also raises what it logs


class _Refused(BucketError, HttpError):
    """A BucketError for callers that is also an HttpError, which code inside gcsfs catches."""

    def __reduce__(self) -> Any:
        return BucketError, (str(self),), {"problem": self.problem}


class GoogleFiles(GCSFileSystem):
    """The file system of ``gs://``, with the arguments of ``GCSFileSystem``; ``storage.file_system`` registers it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("use_listings_cache", False)
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            kwargs.setdefault("token", "anon")
        kwargs.setdefault(
            "requests_timeout",
            aiohttp.ClientTimeout(total=None, sock_connect=idle_timeout_s(), sock_read=idle_timeout_s()),
        )
        try:
            super().__init__(*args, **kwargs)
        except GoogleAuthError as error:
            raise credentials_error("gs://", error) from error

    def __reduce__(self) -> Any:
        """Pickle with the emulator's address, for processes whose environment lacks it (Ray's controller)."""
        there = {"endpoint_url": self._location, "token": "anon"} if os.environ.get("STORAGE_EMULATOR_HOST") else {}
        return make_instance, (type(self), self.storage_args, {**self.storage_options, **there})

    def __eq__(self, other: object) -> bool:
        """Equal if both use the same service URL: Ray Train compares file systems of a checkpoint and its storage."""
        return isinstance(other, GoogleFiles) and self._location == other._location

    def __hash__(self) -> int:
        return hash(self._location)

    async def _request(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        """Send one HTTP request with gcsfs's retries. Raises BucketError, FileNotFoundError, FileExistsError (412)."""
        data = kwargs.get("data")
        where = self._where(path, args)
        try:
            request = super()._request(method, path, *args, **kwargs)
            return await with_deadline(request, where, len(data) if isinstance(data, bytes) else 0)
        except HttpError as error:
            refusal = refusal_error(where, error.code, error.message)
            refused = _Refused(str(refusal))
            refused.code, refused.message, refused.problem = error.code, str(refusal), refusal.problem
            raise refused from error
        except aiohttp.ClientError as error:
            raise BucketError(
                f"{where} cannot be reached ({type(error).__name__}: {error}): look whether the network is up, then "
                "run the same command again"
            ).of_kind(BucketProblem.SILENT) from error
        except GoogleAuthError as error:
            raise credentials_error(where, error) from error
        except ValueError as error:
            if not str(error).startswith("Bad Request"):
                raise
            raise refusal_error(where, 400, str(error)) from error
        except OSError as error:
            if not str(error).startswith("Forbidden"):
                raise
            raise refusal_error(where, 403, str(error)) from error

    async def _info(self, path: str, generation: Any = None, **kwargs: Any) -> Any:
        """Metadata of a file or folder. Unlike gcsfs, requests a listing only for folders that are not in FOLDERS."""
        path = self._strip_protocol(path).rstrip("/")
        bucket, key, _ = self.split_path(path)
        if path in FOLDERS:
            return {"name": path, "size": 0, "type": "directory"}
        if not key or generation:
            return await super()._info(path, generation=generation, **kwargs)
        try:
            return await self._get_object(path)
        except FileNotFoundError:
            if self._parent(path) in FOLDERS:
                raise
        return await self._get_directory_info(path, bucket, key, None)

    async def _ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        """Entries of a folder; for a folder in FOLDERS that has subfolders there, only those."""
        folder = self._strip_protocol(path).rstrip("/")
        known = sorted(one for one in FOLDERS if self._parent(one) == folder) if folder in FOLDERS else []
        if not known:
            return await super()._ls(path, detail=detail, **kwargs)
        return [await self._info(one) for one in known] if detail else known

    async def _find(self, path: str, *args: Any, detail: bool = False, **kwargs: Any) -> Any:
        folder = self._strip_protocol(path).rstrip("/")
        if folder not in FOLDERS and self._parent(folder) in FOLDERS:
            return {} if detail else []
        return await super()._find(path, *args, detail=detail, **kwargs)

    async def _isdir(self, path: str) -> bool:
        """Whether a path is a folder; unlike in gcsfs, a bucket that does not answer raises BucketError."""
        try:
            return bool((await self._info(path))["type"] == "directory")
        except FileNotFoundError:
            return False

    async def _rm(self, path: str | list[str], recursive: bool = False, **kwargs: Any) -> None:
        """Delete objects or whole folders, markers of checkpoints first: no half-deleted checkpoint looks complete.
        That of a folder given here is removed by name, because a listing may not show it yet."""
        paths, markers = [path] if isinstance(path, str) else path, 0
        for folder in paths if recursive else ():
            with contextlib.suppress(FileNotFoundError):
                await self._rm_file(f"{self._strip_protocol(folder).rstrip('/')}/{COMMIT_MARKER}")
                markers += 1
        try:
            await super()._rm(path, recursive=recursive, **kwargs)
        except FileNotFoundError:
            if markers < len(paths):  # else each held its marker alone
                raise

    rm = sync_wrapper(_rm)  # gcsfs binds its own

    async def _delete_files(self, files: list[str], batchsize: int) -> list[Any]:
        """Delete objects in any order, but markers of checkpoints first."""
        marker = f"/{COMMIT_MARKER}"
        markers = sorted((file for file in files if file.endswith(marker)), key=len)
        first = [m for m in markers if not any(m.startswith(f"{n.removesuffix(marker)}/") for n in markers if n != m)]
        rest = [file for file in files if file not in set(first)]
        deleted = await super()._delete_files(first, batchsize) if first else []
        return [*deleted, *await super()._delete_files(rest, batchsize)]

    def _where(self, path: str, args: tuple[Any, ...]) -> str:
        """Name of the bucket of a request, for error messages; ``args`` are the parts of its path."""
        if args:
            return f"gs://{args[0]}"
        _, separator, rest = path.partition("/b/")
        return f"gs://{rest.split('/')[0]}" if separator else "the storage service"
