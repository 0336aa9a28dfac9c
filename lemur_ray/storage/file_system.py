"""The one file system of a URL: for us, for pyarrow, Ray Train and Ray Data, and below orbax.

Every client of a bucket brings an endpoint, credentials, deadlines and retries of its own, and some wait for ever. Here
``gs://`` and ``s3://`` get one implementation with deadlines (``google_files``, ``amazon_files``), registered with
fsspec so that libraries which ask fsspec by themselves (etils below orbax, Ray Data) get the same, and the C++ clients
(tensorstore) are told by environment variables to go to the same place. Knows nothing of what is stored.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import fsspec

if TYPE_CHECKING:
    import pyarrow.fs

EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
"""By scheme, the extra of this package that brings its client."""
BUCKET_VARIABLES = (
    "STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL", "GOOGLE_AUTH_TOKEN_FOR_TESTING", "NO_GCE_CHECK",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
    "LEMUR_BUCKET_PATIENCE_S",
)  # fmt: skip
"""Environment variables of the driver that say where a bucket is; its workers share them. Credentials are not among
them: every host has its own (workload identity, a role of the machine)."""
_OURS = {
    "gs": "lemur_ray.storage.google_files.GoogleFiles",
    "gcs": "lemur_ray.storage.google_files.GoogleFiles",
    "s3": "lemur_ray.storage.amazon_files.AmazonFiles",
    "s3a": "lemur_ray.storage.amazon_files.AmazonFiles",
}


def file_system(url: str) -> tuple[Any, str]:
    """(fsspec file system, path in it) of a local path or URL; the same object for every URL of one scheme.

    Raises:
        ImportError: the client of that scheme is not installed; the message names the extra.
        ValueError: no scheme that anything here knows.
    """
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


def arrow_file_system(url: str) -> tuple[pyarrow.fs.FileSystem | None, str]:
    """(pyarrow file system over ``file_system``, path in it), for Ray Train, Ray Data and parquet.

    (None, the path) for a local path: their own handling of those needs no help.
    """
    if "://" not in url:
        return None, url
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    fs, path = file_system(url)
    return PyFileSystem(FSSpecHandler(fs)), path


def is_bucket(url: str) -> bool:
    """Whether a path lies in a bucket; ``memory://``, which tests use, counts as one."""
    return "://" in url


def configure_clients() -> None:
    """Settle endpoints and deadlines of the clients that are not ours; again and again, costs nothing."""
    for name, value in client_environment().items():
        os.environ.setdefault(name, value)


def client_environment() -> dict[str, str]:
    """Environment variables that lead the other clients to the same place and give them deadlines.

    gcsfs is kept from asking by gRPC of which type a bucket is: where that port is closed every start stalls a minute.
    tensorstore ends a transfer that stands still and does not wait for a connection for ever.
    """
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
    """What the workers of this driver must have in their environment to reach the same buckets."""
    configure_clients()
    return {name: os.environ[name] for name in BUCKET_VARIABLES if os.environ.get(name)}


for _scheme, _class in _OURS.items():
    fsspec.register_implementation(_scheme, _class, clobber=True, errtxt=f"no client of {_scheme}:// is installed")
