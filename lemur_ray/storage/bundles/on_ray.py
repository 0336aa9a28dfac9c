"""Transfer of bundles to the actors of a job, through ``$LEMUR_STORE`` if it is set, else through Ray's object store.

Without a store, an actor on the driver's host holds the pieces of each archive. Every host downloads them once; they
disappear with the job. Only archives of up to 500 MB can be sent this way."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.storage.bundles import host_cache, store
from lemur_ray.storage.bundles.archive import content_size
from lemur_ray.storage.bundles.bundle import Bundle, BundleError
from lemur_ray.storage.file_system import bucket_environment, is_bucket

PIECE_BYTES = 64 * 2**20
MOST_BYTES = 500 * 10**6
SCHEME = "pieces:"


class _Holder:
    """Ray actor that holds references to the pieces of archives, so that Ray does not free them."""

    def __init__(self) -> None:
        self._pieces: dict[str, Sequence[Any]] = {}

    def keep(self, digest: str, pieces: Sequence[Any]) -> None:
        self._pieces[digest] = pieces

    def pieces(self, digest: str) -> Sequence[Any]:
        return self._pieces[digest]


class Publisher:
    """Uploads each file or folder as a bundle once; bundles are available until ``close``. Without ``$LEMUR_STORE`` it
    starts a Ray actor, for which ``ray.init`` must have been called."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, bool], Bundle] = {}
        self._name = f"lemur-bundles-{secrets.token_hex(4)}"
        self._holder: Any = None

    def __call__(self, source: Path, dated: bool) -> Bundle:
        """Bundle of a file or folder, uploaded on the first call. dated: with file times. Raises BundleError."""
        if (source, dated) not in self._known:
            kept = store.store_location()
            bundle = store.publish(source, kept, dated=dated) if kept else self._in_pieces(source, dated)
            self._known[source, dated] = bundle
        return self._known[source, dated]

    @staticmethod
    def environment() -> dict[str, str]:
        """Environment variables that actors need to reach a store in a bucket, else {}. Raises BundleError if
        ``$LEMUR_STORE`` is invalid."""
        return bucket_environment() if is_bucket(store.store_location()) else {}

    def _in_pieces(self, source: Path, dated: bool) -> Bundle:
        if (size := content_size(source)) > MOST_BYTES:  # before anything is packed
            raise BundleError(
                f"{source}: {size} bytes are too many for Ray's object store (at most {MOST_BYTES}): set "
                f"{store.VARIABLE} to a bucket or a mounted folder that every host reads"
            )
        with store.packed_archive(source, dated=dated) as (archive, digest):
            size = archive.stat().st_size
            with archive.open("rb") as file:
                pieces = [ray.put(piece) for piece in iter(lambda: file.read(PIECE_BYTES), b"")]
        if self._holder is None:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
            remote = ray.remote(_Holder).options(name=self._name, num_cpus=0, scheduling_strategy=here)
            self._holder = remote.remote()
        ray.get(self._holder.keep.remote(digest, pieces))
        return Bundle(f"{SCHEME}{self._name}", digest, size)

    def close(self) -> None:
        """End the actor that holds pieces, if any; its bundles can then no longer be fetched."""
        if self._holder is not None:
            ray.kill(self._holder)
        self._holder = None


def fetch(bundle: Bundle, archive: Path) -> None:
    """Write the archive of a bundle, from the store or from the actor that holds it, to the path ``archive``. Raises
    BundleError if it no longer exists, other errors of the store or of Ray if a retry may help."""
    if not bundle.url.startswith(SCHEME):
        store.fetch(bundle, archive)
        return
    try:
        pieces: Sequence[Any] = ray.get(ray.get_actor(bundle.url.removeprefix(SCHEME)).pieces.remote(bundle.digest))
        with archive.open("wb") as file:
            for piece in pieces:
                file.write(ray.get(piece))
    except (ValueError, KeyError, ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
        raise BundleError(
            f"{bundle.url}: the actor that holds the bundle is gone, or its pieces are ({type(error).__name__}): with "
            f"{store.VARIABLE} set to a bucket they outlive it"
        ) from error


def unpacked_bundle(bundle: Bundle) -> Path:
    """Folder on this host with the extracted files of a bundle, downloaded if necessary. Raises BundleError if it
    cannot be downloaded or extracted."""
    return host_cache.unpacked_bundle(bundle, fetch)
