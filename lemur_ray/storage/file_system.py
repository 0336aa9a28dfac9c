"""Open the file system of a path or bucket URL, the same for this project, pyarrow, Ray Train, Ray Data and orbax.

Bucket clients differ in endpoints, credentials, timeouts and retries, and some wait for ever. Here ``gs://`` and
``s3://`` get one implementation with timeouts (``google_files``, ``amazon_files``), registered with fsspec so that
libraries that use fsspec by themselves (etils below orbax, Ray Data) get it, too. C++ clients (tensorstore) are pointed
to the same service by environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fsspec

if TYPE_CHECKING:
    import pyarrow.fs

EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
"""Extra of this package (``pip install 'lemur-ray[EXTRA]'``) with the client library of each URL scheme."""
BUCKET_VARIABLES = (
    "STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL", "GOOGLE_AUTH_TOKEN_FOR_TESTING", "NO_GCE_CHECK",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
    "LEMUR_BUCKET_PATIENCE_S", "HF_ENDPOINT",
)  # fmt: skip
"""Environment variables that locate a bucket or the Hub, passed from the driver to its workers. Credentials are not
among them: every host has its own (workload identity, a role of the machine)."""
COMMIT_MARKER = "commit_success.txt"
"""Name of the object that orbax writes last into a checkpoint, and into each of its items, under ``gs://``."""
FOLDERS: set[str] = set()
"""Paths of ``gs://`` folders that are assumed to exist and to have no subfolders except those in this set."""
_CLASSES = {"gcs": "lemur_ray.storage.google_files.GoogleFiles", "s3": "lemur_ray.storage.amazon_files.AmazonFiles"}
"""Extra -> the file system of its URL schemes."""


def file_system(url: str) -> tuple[Any, str]:
    """(fsspec file system, path in it) of a local path or URL; the same object for every URL of one scheme. Raises
    ImportError, which names the extra, if the scheme's client is not installed, ValueError for an unknown one."""
    scheme = url.partition("://")[0] if "://" in url else ""
    configure_clients()
    try:
        fs, path = fsspec.url_to_fs(url)
    except ImportError as error:
        extra = EXTRAS.get(scheme)
        raise ImportError(
            f"{url} cannot be reached from here ({error})"
            + (f": install what it needs with pip install 'lemur-ray[{extra}]'" if extra else "")
        ) from error
    return fs, str(path)


def note_folders(*urls: str) -> Callable[[], None]:
    """Add ``gs://`` folders to FOLDERS, so that looking up a file in them needs no listing; other URLs are ignored.
    Returns a function that removes them again."""
    paths = {file_system(url)[1] for url in urls if url.startswith("gs://")}
    FOLDERS.update(paths)
    return lambda: FOLDERS.difference_update(paths)


def arrow_file_system(url: str) -> tuple[pyarrow.fs.FileSystem | None, str]:
    """(pyarrow file system over ``file_system``, path in it), for Ray Train, Ray Data and parquet. (None, the path) for
    a local path, which those libraries open themselves."""
    if "://" not in url:
        return None, url
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    fs, path = file_system(url)
    return PyFileSystem(FSSpecHandler(fs)), path


def is_bucket(url: str) -> bool:
    """Whether ``url`` is a URL (has ``://``) and not a local path; ``memory://``, which tests use, counts, too."""
    return "://" in url


def configure_clients() -> None:
    """Set those variables of ``client_environment`` that are not set yet. Cheap, so it may be called repeatedly."""
    for name, value in client_environment().items():
        os.environ.setdefault(name, value)


def client_environment() -> dict[str, str]:
    """Environment variables, by name, that set endpoints and timeouts of third-party bucket clients. gcsfs must not
    query the type of a bucket by gRPC: where that port is closed, every start would stall for a minute. tensorstore
    gets timeouts for connections and for stalled transfers."""
    variables = {
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "TENSORSTORE_CURL_CONNECT_TIMEOUT_SECONDS": "15",
        "TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS": "30",
        "TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES": "1",
    }
    if emulator := os.environ.get("STORAGE_EMULATOR_HOST", ""):
        url = emulator if "://" in emulator else f"http://{emulator}"
        variables |= {"TENSORSTORE_GCS_HTTP_URL": url, "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none", "NO_GCE_CHECK": "true"}
    return variables


def bucket_environment() -> dict[str, str]:
    """Those environment variables of this process (credentials, endpoints, timeouts) that workers need to reach the
    same buckets. Also calls ``configure_clients``."""
    configure_clients()
    return {name: os.environ[name] for name in BUCKET_VARIABLES if os.environ.get(name)}


for _scheme, _extra in EXTRAS.items():
    _error = f"no client of {_scheme}:// is installed"
    fsspec.register_implementation(_scheme, _CLASSES[_extra], clobber=True, errtxt=_error)
