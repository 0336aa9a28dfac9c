"""The store of bundles: upload to and download from ``$LEMUR_STORE/bundles/``, a bucket or a folder of all hosts."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lemur_ray.storage.bundles.archive import pack, packed_size
from lemur_ray.storage.bundles.bundle import Bundle, BundleError
from lemur_ray.storage.bundles.host_cache import bundle_cache
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.published_folder import replaced_file
from lemur_ray.storage.retry_policy import BucketError

VARIABLE = "LEMUR_STORE"


def store_location() -> str:
    """``$LEMUR_STORE``, a URL or absolute folder; empty if not set. Raises BundleError for a relative folder."""
    named = os.environ.get(VARIABLE, "").rstrip("/")
    if named and "://" not in named and not Path(named).is_absolute():
        raise BundleError(f"{VARIABLE}={named}: expected a URL such as gs://bucket/folder, or an absolute folder")
    return named


def publish(source: Path, store: str, *, dated: bool = False) -> Bundle:
    """Bundle of the file or folder ``source``; its archive is uploaded to ``store``/bundles (a URL or folder) unless it
    is there already. ``dated``: keep modification times. Raises BundleError if packing or upload fails."""
    with packed_archive(source, dated=dated) as (archive, digest):
        size = archive.stat().st_size
        bundle = Bundle(f"{store.rstrip('/')}/bundles/{digest}.tar", digest, size)
        try:
            fs, inner = file_system(bundle.url)
            if not fs.exists(inner) or fs.size(inner) != size:
                # In a mounted folder the archive appears by a rename, as an upload does in a bucket.
                local = replaced_file(Path(inner)) if "file" in fs.protocol else contextlib.nullcontext(inner)
                with local as target:
                    fs.put_file(str(archive), str(target))
        except Exception as error:  # every client raises its own
            raise BundleError(
                f"{VARIABLE}={store} cannot take the {size} bytes of {source} ({_error_text(error)}): it must be there "
                "and writable from here"
            ) from error
        return bundle


@contextlib.contextmanager
def packed_archive(source: Path, *, dated: bool = False) -> Iterator[tuple[Path, str]]:
    """Context manager: (path of a temporary archive of ``source``, its SHA-256 in hex). ``dated``: keep modification
    times. Raises BundleError, also if the disk has no room."""
    here = bundle_cache()
    cache = here.folder
    cache.mkdir(parents=True, exist_ok=True)
    here.check_room(packed_size(source), str(source))
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=cache) as folder:
        archive = Path(folder) / "bundle.tar"
        try:
            digest = pack(source, archive, dated=dated)
        except OSError as error:
            raise BundleError(f"{cache}: {source} cannot be packed there: {error}") from error
        yield archive, digest


def fetch(bundle: Bundle, archive: Path) -> None:
    """Download a bundle to the path ``archive``. Raises BundleError if retries are useless, else the client's error."""
    try:
        fs, inner = file_system(bundle.url)
        fs.get_file(inner, str(archive))
    except (BucketError, ImportError) as error:
        raise BundleError(f"{bundle.url} cannot be had on this host: {error}") from error
    except FileNotFoundError:
        raise BundleError(
            f"{bundle.url}: is not there (deleted, or {VARIABLE} is another place on this host): start the job again, "
            "which publishes it anew"
        ) from None


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, BucketError | ImportError) else f"{type(error).__name__}: {str(error)[:300]}"
