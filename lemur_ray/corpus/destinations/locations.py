"""Destination of a corpus build: a folder that all workers see, or a bucket that each host accesses by itself.

Each class tells what is committed there and may be replaced, how workers exchange files, and commits the result."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations.bucket_build import BucketCorpus
from lemur_ray.corpus.destinations.step_files import BUILDS, SharedFolder, end_builds
from lemur_ray.corpus.manifest import (
    MANIFEST,
    CorpusError,
    is_complete,
    local_folder,
    matches_build,
    read_manifest,
    row_folder,
    write_manifest,
)
from lemur_ray.corpus.rows import RowReader, RowSetError
from lemur_ray.corpus.sources.folders import catalogue_source
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.published_folder import check_writable, publish

Say = Callable[[str], None]


class CorpusFolder:
    """A corpus in a local or mounted folder that every worker sees.
    Methods raise OSError from storage, and CorpusError if an existing corpus may not be replaced."""

    def __init__(self, folder: Path, allow_failed: int = 0) -> None:
        """folder: path of the corpus, in which the driver works. allow_failed: number of parts that may be left out."""
        self.folder, self.allow_failed = folder, allow_failed
        self.shared_folder: Path | None = folder
        """Folder in which all workers read and write files of the build; None if they exchange files by bucket."""
        self.name = self.store = str(folder)
        """Path or URL of the corpus (for messages), and of that whose build folder keeps the outputs of steps."""

    def committed(self) -> dict[str, Any] | None:
        """Manifest of the committed corpus, whatever its configuration; None if there is none that can be read."""
        try:
            return read_manifest(self.folder)
        except CorpusError:
            return None

    def reusable(
        self, description: dict[str, Any], overwrite: bool, say: Say, again: bool | None = None
    ) -> dict[str, Any] | None:
        """Manifest of the committed corpus if it has this description and is intact; else None, after removing
        ``manifest.json``. say: reports the reason. again: whether None is returned for that corpus, too, because files
        of its sources may have changed; default: ``overwrite``. Raises CorpusError if another corpus is there and
        ``overwrite`` is False."""
        again = overwrite if again is None else again
        if not is_complete(self.folder):
            return None
        manifest = self._intact_manifest(overwrite, say)
        matches = manifest and matches_build(self.folder, manifest, description, overwrite, say, self.allow_failed)
        if matches and not again:
            return manifest
        (self.folder / MANIFEST).unlink()
        return None

    def _intact_manifest(self, overwrite: bool, say: Say) -> dict[str, Any] | None:
        """Manifest if all shards match their checksums, else None; CorpusError if unreadable and not ``overwrite``."""
        try:
            manifest = read_manifest(self.folder)
        except CorpusError as error:
            if not overwrite:
                raise
            say(f"{error}: it is replaced")
            return None
        try:
            for source in manifest["sources"]:
                RowReader(row_folder(self.folder, source["name"])).verify()
        except RowSetError as error:
            say(f"{self.folder} is damaged ({error}): it is built again")
            shutil.rmtree(self.folder / BUILDS, ignore_errors=True)  # what damaged the rows may have damaged more
            return None
        return manifest

    def made_meanwhile(self, description: dict[str, Any]) -> dict[str, Any] | None:
        """None: the folder's lock keeps other processes out. In a bucket, the manifest if another process has committed
        the described corpus."""
        return None

    def handover(self, work: Path, name: str) -> SharedFolder:
        """Object by which the driver and the workers exchange files of the build ``name`` in the folder ``work``."""
        return SharedFolder(work, name)

    def commit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Write the manifest, which completes the corpus; returns it as stored. Errors as ``write_manifest``."""
        write_manifest(self.folder, manifest)
        return read_manifest(self.folder)


class UploadedCorpus(BucketCorpus):
    """A corpus that this host builds in a local folder and then uploads to the bucket, because a source is local or
    ``workers`` is 0. url: of the corpus in the bucket; overwrite: whether to replace a corpus of another configuration;
    say: gets progress messages; allow_failed: maximum number of missing parts with which a corpus is reused."""

    def __init__(self, url: str, overwrite: bool, say: Say, allow_failed: int = 0) -> None:
        super().__init__(url, allow_failed)
        self._local, self._overwrite, self._say = CorpusFolder(self.folder, allow_failed), overwrite, say
        self.shared_folder, self.store = self._local.shared_folder, self._local.store

    def reusable(self, description: dict[str, Any], overwrite: bool, say: Say) -> dict[str, Any] | None:
        if (manifest := self.find(description, overwrite, say)[0]) is not None:
            return manifest
        check_writable(self.url)
        local = self._local.reusable(description, True, say, overwrite)  # built before, but its upload was cut off
        return self._upload(local) if local else None

    def handover(self, work: Path, name: str) -> SharedFolder:
        return self._local.handover(work, name)

    def commit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._upload(self._local.commit(manifest))

    def _upload(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Copy the finished build to the bucket, unless it is committed there already; returns its manifest."""
        if (other := self.find(manifest["config"], self._overwrite, self._say)[0]) is not None:
            return other
        self.claim(manifest["build"], self._overwrite)
        publish(self.folder, self.url, last=MANIFEST)
        end_builds(self.url)
        shutil.rmtree(self.folder / BUILDS, ignore_errors=True)  # texts of the sources, in a folder nobody looks into
        return manifest


CorpusLocation = CorpusFolder | BucketCorpus
"""Destination of a corpus build."""


def corpus_location(
    folder: str | Path, config: CorpusConfig, workers: int | None, overwrite: bool, say: Say, allow_failed: int = 0
) -> CorpusLocation:
    """Destination for ``folder``, a path or URL: a folder, a bucket in which hosts build together if all sources are in
    buckets and ``workers`` is not 0, else a bucket to which this host uploads. overwrite: replace a corpus of another
    configuration; allow_failed: number of parts that may be missing. Raises CorpusError for invalid sources."""
    if not is_bucket(str(folder)):
        return CorpusFolder(local_folder(folder).absolute(), allow_failed)
    url = str(folder).rstrip("/")
    places = [catalogue_source(spec).place for spec in config.specs()]
    in_buckets = bool(places) and all(is_bucket(place) for place in places)
    if in_buckets and workers != 0:
        return BucketCorpus(url, allow_failed)
    return UploadedCorpus(url, overwrite, say, allow_failed)
