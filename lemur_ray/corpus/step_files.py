"""Exchange of files between the driver of a build and its steps: through a shared folder or through a bucket.

Names are relative to the build folder. With a bucket, a step runs in a temporary folder of its host: its inputs are
downloaded first and its outputs uploaded afterwards, the commit file last. A build exists as long as its listing does:
a step that outlives its build, for example on a host that lost its connection, uploads nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.corpus import stages
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.listing import LISTING
from lemur_ray.storage.file_system import bucket_environment, file_system
from lemur_ray.storage.folder_mirror import download_file
from lemur_ray.storage.published_folder import scratch_folder

BUILDS, CLAIM = ".build", "claim.json"
_AT_ONCE = 16
"""Number of objects that the driver transfers in parallel."""


class BuildGone(OSError):
    """The build to which a step belongs is gone: another process has committed the corpus or begun another build."""


class SharedFolder:
    """Exchange of files through a build folder that the driver and all workers see: nothing is transferred."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def was_begun(self) -> bool:
        """Whether the build has a listing, to which its other files belong."""
        return (self.work / LISTING).is_file()

    def begin(self) -> None:
        """Remove files of earlier builds and publish the parts with their listing; nothing to do in a shared folder."""

    def check(self) -> None:
        """Raise BuildGone if the build no longer exists in the bucket; nothing to do in a shared folder."""

    def runs(self, step: Callable[..., None]) -> Callable[..., None]:
        """Function that runs ``step`` on any worker, called with the step's arguments other than the build folder."""
        return partial(step, self.work)

    def parts_to_do(self, stage: str, numbers: Iterable[int]) -> list[int]:
        """Part numbers whose output of ``stage`` (clean or tokens) is not committed."""
        return [number for number in numbers if not stages.part_done(self.work, number, stage)]

    def shards_to_do(self, shards: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of the shards, each (row set, window), that are not committed."""
        return [shard for shard in shards if not stages.window_done(self.work, *shard)]

    def send(self, *names: str) -> None:
        """Make files of the driver available to workers; a name with a slash at its end is a whole folder."""

    def fetch(self, *names: str) -> None:
        """Make files of workers available to the driver; missing ones are skipped."""

    def remove(self, *names: str) -> None:
        """Remove commit files, so that the next build does their steps again."""
        for name in names:
            (self.work / name).unlink(missing_ok=True)


class ThroughBucket(SharedFolder):
    """Exchange of files between the driver and the workers through the bucket of the corpus ``url``.

    work: build folder of the driver. name: folder of this build in the bucket, different for changed sources.
    """

    def __init__(self, work: Path, url: str, name: str) -> None:
        super().__init__(work)
        self.url, self.name = url, name

    def was_begun(self) -> bool:
        """Whether the bucket has a listing of this build; if the local one differs, local files are replaced by it."""
        fs, there = self._there()
        try:
            listed = bytes(fs.cat_file(f"{there}/{LISTING}"))
        except FileNotFoundError:
            return False
        mine = self.work / LISTING
        if not mine.is_file() or mine.read_bytes() != listed:
            shutil.rmtree(self.work, ignore_errors=True)
            for name in stages.FOLDERS:
                (self.work / name).mkdir(parents=True)
            write_atomically(mine, listed)
        return True

    def begin(self) -> None:
        remove_build_files(self.url, but=CLAIM)
        self.send("parts/")
        self.send(LISTING)

    def check(self) -> None:
        fs, there = self._there()
        _check(fs, there)

    def runs(self, step: Callable[..., None]) -> Callable[..., None]:
        return partial(_run_remotely, self.url, self.name, bucket_environment(), step)

    def parts_to_do(self, stage: str, numbers: Iterable[int]) -> list[int]:
        there = self._names(stage)
        return [number for number in numbers if f"{stage}/{number:05d}.json" not in there]

    def shards_to_do(self, shards: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        there = self._names("sets")
        return [(name, window) for name, window in shards if f"sets/{name}-{window:05d}.json" not in there]

    def send(self, *names: str) -> None:
        fs, there = self._there()
        files = [name for name in names if not name.endswith("/")]
        for folder in (name for name in names if name.endswith("/")):
            files += [f"{folder}{path.name}" for path in sorted((self.work / folder).iterdir())]
        _in_parallel(lambda name: fs.put_file(str(self.work / name), f"{there}/{name}"), files)

    def fetch(self, *names: str) -> None:
        _in_parallel(lambda name: _fetch(f"{self.url}/{BUILDS}/{self.name}/{name}", self.work / name), names)

    def remove(self, *names: str) -> None:
        super().remove(*names)
        fs, there = self._there()
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(f"{there}/{name}")

    def _names(self, stage: str) -> set[str]:
        fs, there = self._there()
        return {path.removeprefix(there).lstrip("/") for path in fs.find(f"{there}/{stage}")}

    def _there(self) -> tuple[Any, str]:
        return file_system(f"{self.url}/{BUILDS}/{self.name}")


def _fetch(url: str, to: Path) -> None:
    """Download the object ``url`` to ``to`` atomically; nothing if the file exists already or the object does not."""
    if not to.exists():
        with contextlib.suppress(FileNotFoundError):
            download_file(url, to)


def remove_build_files(url: str, but: str = "") -> None:
    """Remove intermediate files of all builds of the corpus ``url``; listings first, which invalidates the rest.

    but: name of an object to keep. Raises OSError.
    """
    fs, there = file_system(f"{url}/{BUILDS}")
    for _ in range(3):
        left = [path for path in fs.find(there) if path != f"{there}/{but}"]
        listings = [path for path in left if path.endswith(f"/{LISTING}")]
        for some in filter(None, (listings, [path for path in left if path not in listings])):
            with contextlib.suppress(FileNotFoundError):  # another process removes them, too
                fs.rm(some)
        if not left:
            return


def _check(fs: Any, there: str) -> None:
    if not fs.exists(f"{there}/{LISTING}"):
        raise BuildGone(f"{there} is no more: another process has made this corpus, or begun another one there")


def _in_parallel(move: Callable[[str], None], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(move, names))


def _run_remotely(
    url: str, name: str, environment: dict[str, str], step: Callable[..., None], /, **arguments: Any
) -> None:
    """Download a step's inputs to a temporary folder, run it, upload its outputs. Raises BuildGone, OSError."""
    os.environ.update(environment)
    fs, corpus = file_system(url)
    with scratch_folder() as folder:
        build = folder / BUILDS / name
        for inner in stages.FOLDERS:
            (build / inner).mkdir(parents=True)
        there = f"{corpus}/{BUILDS}/{name}"
        for needed in stages.NEEDS[step](build, **arguments):
            wanted = [needed]
            if needed.endswith("/"):
                wanted = [path.removeprefix(there).lstrip("/") for path in fs.find(f"{there}/{needed.rstrip('/')}")]
            for one in wanted:
                _fetch(f"{url}/{BUILDS}/{name}/{one}", build / one)
        step(build, **arguments)
        _check(fs, there)
        for made in stages.GIVES[step](build, **arguments):
            fs.put_file(str(made), f"{corpus}/{made.relative_to(folder).as_posix()}")
