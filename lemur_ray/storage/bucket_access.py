"""Check that this host can write, read and remove objects in a bucket, with every client library that a job uses.

Each client looks up credentials by itself, so one may have access where another has not."""

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from lemur_ray.storage.conditional_writes import read_version, write_if
from lemur_ray.storage.file_system import arrow_file_system, file_system
from lemur_ray.storage.retry_policy import (
    BucketError,
    BucketProblem,
    missing_bucket_error,
    refusal_error,
    request_timeout_s,
    timeout_error,
)


class AccessFailure(NamedTuple):
    """Why a client library cannot use a bucket: the kind of problem, and a sentence (``reason``) for the user."""

    problem: BucketProblem
    reason: str


def check_clients(url: str, environment: Mapping[str, str] | None = None) -> dict[str, AccessFailure | None]:
    """Write, read and remove a small object with each client; returns by client name its failure, None for success.
    environment: variables to set in this process first, such as the driver's ``file_system.bucket_environment``. Client
    names: files (gcsfs or s3fs), pyarrow (Ray Train and Ray Data), leases (conditional writes), and for ``gs://`` also
    epath and tensorstore (checkpoints of orbax)."""
    os.environ.update(environment or {})
    clients: dict[str, Callable[[str, bytes], None]] = {"files": _files, "pyarrow": _arrow, "leases": _leases}
    if url.startswith("gs://"):
        clients |= {"epath": _epath, "tensorstore": _tensorstore}
    with ThreadPoolExecutor(len(clients)) as at_once:  # an unreachable bucket costs each a full timeout
        return dict(zip(clients, at_once.map(partial(_why_not, url.rstrip("/")), clients.values()), strict=True))


def _why_not(url: str, ask: Callable[[str, bytes], None]) -> AccessFailure | None:
    """Failure of the client function ``ask``, or None. Clients with the same problem give equal failures."""
    bucket = "/".join(url.split("/")[:3])
    try:
        ask(f"{url}/.probe-{uuid.uuid4().hex[:12]}", uuid.uuid4().bytes)
    except FileNotFoundError:
        return _failure(missing_bucket_error(url))
    except TimeoutError:
        return _failure(timeout_error(bucket, request_timeout_s()))
    except Exception as error:  # clients have no common error class
        text = re.sub(r"https?://\S+ ?", "", " ".join(str(error).split()))
        if (status := re.search(r"http_response_code='(\d+)'", text)) is None:  # only tensorstore reports it so
            problem = error.problem if isinstance(error, BucketError) else BucketProblem.REFUSED
            return AccessFailure(problem, text[:400] or type(error).__name__)
        if status[1] == "404":
            return _failure(missing_bucket_error(url))
        return _failure(refusal_error(bucket, status[1], text.partition(" [")[0]))
    return None


def _failure(error: BucketError) -> AccessFailure:
    return AccessFailure(error.problem, str(error))


def _files(url: str, data: bytes) -> None:
    fs, path = file_system(url)
    fs.pipe_file(path, data)
    with _removed(fs, path):
        _same(fs.cat_file(path), data)


def _arrow(url: str, data: bytes) -> None:
    arrow, path = arrow_file_system(url)
    if arrow is None:
        raise ValueError(f"{url} is no bucket")
    with arrow.open_output_stream(path) as out:
        out.write(data)
    with _removed(*file_system(url)), arrow.open_input_file(path) as file:
        _same(file.read(), data)


def _leases(url: str, data: bytes) -> None:
    version = write_if(url, b"before", None)
    with _removed(*file_system(url)):
        write_if(url, data, version)
        stored = read_version(url)
        _same(stored[0] if stored else b"", data)


def _epath(url: str, data: bytes) -> None:
    fs, path = file_system(url)  # epath uses it, unless TensorFlow is installed
    from etils import epath

    epath.Path(url).write_bytes(data)
    with _removed(fs, path):
        _same(epath.Path(url).read_bytes(), data)


def _tensorstore(url: str, data: bytes) -> None:
    file_system(url)  # sets the variables that name its endpoint
    import tensorstore

    bucket, _, path = url.removeprefix("gs://").partition("/")
    wait_s = request_timeout_s()
    store = tensorstore.KvStore.open({"driver": "gcs", "bucket": bucket}).result(timeout=wait_s)
    store.write(path, data).result(timeout=wait_s)
    _same(store.read(path).result(timeout=wait_s).value, data)
    store.write(path, None).result(timeout=wait_s)


@contextlib.contextmanager
def _removed(fs: Any, path: str) -> Iterator[None]:
    """Context manager that removes an object after the block; raises if that fails."""
    try:
        yield
    finally:
        fs.rm_file(path)


def _same(read: bytes, written: bytes) -> None:
    if read != written:
        raise OSError(f"{len(written)} bytes were written, and {len(read)} others came back")
