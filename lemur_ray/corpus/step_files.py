"""How the driver of a build and its steps hand each other files: through a folder that all see, or through a bucket.

Names are those of files below the build folder. In a bucket, a step runs in a folder of its own on whatever host takes
it: what it needs comes there first, what it made goes back, its commit file last. A build is the one whose listing is
there: a step that outlived its build, on a host that was cut off for example, gives nothing back. Knows names, not what
is in files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.corpus import stages
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.listing import LISTING
from lemur_ray.storage.file_system import bucket_environment, file_system
from lemur_ray.storage.published_folder import scratch_folder

BUILDS, CLAIM = ".build", "claim.json"
_AT_ONCE = 16
"""Objects that the driver moves at the same time."""


class BuildGone(OSError):
    """The build that a step belongs to is no more: it was committed by another process, or another one began."""


class SharedFolder:
    """Whoever works sees the build folder."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def was_begun(self) -> bool:
        """Whether there is a listing, so that whatever is there belongs to it."""
        return (self.work / LISTING).is_file()

    def begin(self) -> None:
        """Give parts and their listing; whatever was there before is none of this build's."""

    def check(self) -> None:
        """Raises BuildGone."""

    def runs(self, step: Callable[..., None]) -> Callable[..., None]:
        """The step as a function of its arguments that any worker can call."""
        return partial(step, self.work)

    def parts_to_do(self, stage: str, numbers: Iterable[int]) -> list[int]:
        """Those whose output of ``clean`` or ``tokens`` was not committed."""
        return [number for number in numbers if not stages.part_done(self.work, number, stage)]

    def shards_to_do(self, shards: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those (row set, window) that were not committed."""
        return [shard for shard in shards if not stages.window_done(self.work, *shard)]

    def send(self, *names: str) -> None:
        """Files of the driver, or all of a folder (with a slash at its end), to whoever works."""

    def fetch(self, *names: str) -> None:
        """Files that workers made to the driver; those that are not there are passed over."""


class ThroughBucket(SharedFolder):
    """``url``: of the corpus; ``work``: the driver's folder; ``name``: of this build, of these very sources."""

    def __init__(self, work: Path, url: str, name: str) -> None:
        super().__init__(work)
        self.url, self.name = url, name

    def was_begun(self) -> bool:
        """What this host has of an earlier build goes where that is another one."""
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
        return partial(_elsewhere, self.url, self.name, bucket_environment(), step)

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
        fs, there = self._there()
        _in_parallel(lambda name: fetch_object(fs, f"{there}/{name}", self.work / name), names)

    def _names(self, stage: str) -> set[str]:
        fs, there = self._there()
        return {path.removeprefix(there).lstrip("/") for path in fs.find(f"{there}/{stage}")}

    def _there(self) -> tuple[Any, str]:
        return file_system(f"{self.url}/{BUILDS}/{self.name}")


def fetch_object(fs: Any, path: str, to: Path) -> None:
    """An object to a file, whole or not at all; one that is there already, or not in the bucket, is left."""
    if to.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    partial_file = to.with_name(f".{to.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        fs.get_file(path, str(partial_file))
    except FileNotFoundError:
        partial_file.unlink(missing_ok=True)
        return
    partial_file.replace(to)


def remove_build_files(url: str, but: str = "") -> None:
    """Remove what was handed over in the making of a corpus, the listings first: without them nothing else counts.

    but: name of an object that stays. Raises OSError.
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


def _elsewhere(
    url: str, name: str, environment: dict[str, str], step: Callable[..., None], /, **arguments: Any
) -> None:
    """Run a step on this host, which shares nothing with the driver's. Raises what it raises, and OSError."""
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
                fetch_object(fs, f"{there}/{one}", build / one)
        step(build, **arguments)
        _check(fs, there)
        for made in stages.GIVES[step](build, **arguments):
            fs.put_file(str(made), f"{corpus}/{made.relative_to(folder).as_posix()}")
