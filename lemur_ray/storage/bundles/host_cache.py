"""Cache of extracted bundles on this host, shared by its processes and limited in total size.

``$LEMUR_HOME/cache/bundles`` has one folder per digest. A process keeps using a folder until it ends, because
environments keep it open between episodes. Unused folders are evicted, least recently used first, when the total
exceeds ``$LEMUR_BUNDLES_GB`` (default 50)."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.host.home import lemur_home
from lemur_ray.storage.bounded_cache import BoundedCache, remove_tree
from lemur_ray.storage.bundles.archive import unpack
from lemur_ray.storage.bundles.bundle import Bundle, BundleError

Fetch = Callable[[Bundle, Path], None]
LIMIT = "LEMUR_BUNDLES_GB"
ATTEMPTS = 3
_locks: dict[Path, int] = {}
"""File descriptor of the lock of each cached folder that this process uses."""
_thread_locks: dict[Path, threading.Lock] = {}
_mutex = threading.Lock()


def cache_folder() -> Path:
    """Folder of the extracted bundles of this host: ``$LEMUR_HOME/cache/bundles``; it may not exist yet."""
    return lemur_home() / "cache" / "bundles"


def bundle_cache(cache: Path | None = None) -> BoundedCache:
    """The cache of extracted bundles in the folder ``cache`` (default: that of this host)."""
    return BoundedCache((cache or cache_folder()).absolute(), LIMIT, BundleError)


def unpacked_bundle(bundle: Bundle, fetch: Fetch, cache: Path | None = None, *, pause_s: float = 1.0) -> Path:
    """Folder on this host with the extracted files of a bundle; the first process that needs it downloads them. fetch:
    writes the archive to a path. pause_s: seconds before the second of three attempts, doubled before the third. Raises
    BundleError if all attempts fail."""
    here = bundle_cache(cache)
    folder = here.folder / bundle.digest
    with _mutex:
        mine = _thread_locks.setdefault(folder, threading.Lock())
    with mine:
        if folder in _locks and not folder.is_dir():  # the cache was cleared by hand
            os.close(_locks.pop(folder))
        if folder not in _locks:
            try:
                _locks[folder] = here.acquire(bundle.digest, lambda: _make(bundle, fetch, here, pause_s))
            except OSError as error:
                raise BundleError(f"{here.folder}: {bundle.url} cannot be unpacked there: {error}") from error
    return folder


def _make(bundle: Bundle, fetch: Fetch, here: BoundedCache, pause_s: float) -> None:
    with here.staging_folder(bundle.digest, 2 * bundle.size, bundle.url) as half:
        for attempt in range(ATTEMPTS):
            try:
                fetch(bundle, half / "bundle.tar")
                _check(bundle, half / "bundle.tar")
                remove_tree(half / "out")  # left by the previous attempt
                unpack(half / "bundle.tar", half / "out", bundle.url)
                (half / "out").rename(here.folder / bundle.digest)
                return
            except BundleError:
                raise
            except Exception as error:  # every client raises its own
                if is_full_disk(error):
                    raise
                if attempt + 1 == ATTEMPTS:
                    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                    raise BundleError(
                        f"{bundle.url}: could not be fetched in {ATTEMPTS} attempts ({reason}): this host must "
                        "reach and read it"
                    ) from error
                time.sleep(pause_s * 2**attempt)


def _check(bundle: Bundle, archive: Path) -> None:
    size = archive.stat().st_size
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != bundle.digest:
        what = f"{size} of {bundle.size} bytes" if size != bundle.size else "other bytes"
        raise BundleError(
            f"{bundle.url}: {what} came, not what was published: it was cut or replaced; delete it and start the job "
            "again, which publishes it anew"
        )
