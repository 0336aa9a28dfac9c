"""Exchanges files between the driver of a build and its steps, through a shared folder or through a bucket.

Names are relative to the build folder. With a bucket, a step runs in a temporary folder of its host: its inputs are
downloaded first and its outputs uploaded afterwards, the commit file last. A build exists as long as its listing does:
a step that outlives its build, for example on a host that lost its connection, uploads nothing. Outputs of steps have
keys for names and outlast their build, so that later builds use them."""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.listing import LISTING
from lemur_ray.corpus.steps import stages
from lemur_ray.storage.file_system import bucket_environment, file_system
from lemur_ray.storage.folder_mirror import download_file
from lemur_ray.storage.published_folder import scratch_folder

BUILDS, CLAIM = ".build", "claim.json"
_AT_ONCE = 16
"""Number of objects that the driver transfers in parallel."""


class BuildGone(OSError):
    """The build of a step no longer exists: another process has committed the corpus or begun another build."""


class SharedFolder:
    """Exchange of files between driver and workers through a build folder that all of them see, so nothing is
    transferred. work: build folder of the driver. name: of this build and of its folder in ``work``, different for
    changed sources."""

    def __init__(self, work: Path, name: str) -> None:
        self.work, self.name = work, name
        self.used: dict[str, list[str]] = {}
        """Names of the outputs that this build uses, by stage."""

    def was_begun(self) -> bool:
        """Whether an interrupted build left its ``listing.json`` (files of the sources, grouped into parts)."""
        return (self.work / self.name / LISTING).is_file()

    def begin(self) -> None:
        """End other builds of the corpus and publish the parts with their listing; nothing to do in a shared folder."""

    def check(self) -> None:
        """Raise BuildGone if the build no longer exists in the bucket; nothing to do in a shared folder."""

    def runs(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """``step`` with its first argument, the build folder, filled in: a function that can be sent to any worker,
        takes the step's other arguments by keyword and returns what ``step`` returns. Through a bucket it also
        downloads the inputs and uploads the outputs, and raises BuildGone, OSError."""
        return partial(step, self.work)

    def use(self, stage: str, names: Iterable[str]) -> list[str]:
        """Record that this build uses the outputs of ``stage`` with the keys ``names``; returns these, each once."""
        self.used[stage] = list(dict.fromkeys(names))
        return self.used[stage]

    def parts_to_do(self, stage: str, names: Iterable[str]) -> list[str]:
        """Those of the outputs ``names`` of ``stage`` that are not committed. Records that this build uses them all."""
        return [name for name in self.use(stage, names) if not stages.part_done(self.work, name, stage)]

    def shards_to_do(self, keys: Mapping[str, str]) -> list[str]:
        """Names (NAME-W) of the shards of the corpus that are not committed with their keys. keys: shard -> key.
        Records that this build uses all of them."""
        self.use("sets", keys)
        return [shard for shard, key in keys.items() if not stages.window_done(self.work, shard, key)]

    def send(self, *names: str) -> None:
        """Upload files of the driver, named relative to the build folder, so that workers can read them; ``NAME/`` is a
        folder. Nothing to do in a shared folder."""

    def fetch(self, *names: str) -> None:
        """Download files of workers, named relative to the build folder, so that the driver can read them; missing ones
        are skipped. Nothing to do in a shared folder."""

    def remove(self, *names: str) -> None:
        """Remove commit files, named relative to the build folder, so that the next build does their steps again;
        missing ones are skipped."""
        for name in names:
            (self.work / name).unlink(missing_ok=True)


class ThroughBucket(SharedFolder):
    """Exchange of files between the driver and the workers through the bucket of the corpus ``url``. work: build folder
    of the driver; name: of this build."""

    def __init__(self, work: Path, url: str, name: str) -> None:
        super().__init__(work, name)
        self.url = url

    def was_begun(self) -> bool:
        """Whether the bucket has a listing of this build, which is copied to the build folder."""
        try:
            listed = bytes(self._fs.cat_file(f"{self._there}/{self.name}/{LISTING}"))
        except FileNotFoundError:
            return False
        (self.work / self.name).mkdir(parents=True, exist_ok=True)
        write_atomically(self.work / self.name / LISTING, listed)
        return True

    def begin(self) -> None:
        end_builds(self.url, but=CLAIM)
        self.send("parts/")
        self.send(f"{self.name}/{LISTING}")

    def check(self) -> None:
        _check(self._fs, f"{self._there}/{self.name}")

    def runs(self, step: Callable[..., Any]) -> Callable[..., Any]:
        return partial(_run_remotely, self.url, self.name, bucket_environment(), step)

    def parts_to_do(self, stage: str, names: Iterable[str]) -> list[str]:
        there = {path.rpartition("/")[2] for path in self._fs.find(f"{self._there}/{stage}")}
        for copy in (self.work / stage).glob("*") if stage == "clean" else ():
            copy.unlink(missing_ok=True)  # of a part that could not be read then: it is cleaned again under this key
        return [name for name in self.use(stage, names) if f"{name}.json" not in there]

    def shards_to_do(self, keys: Mapping[str, str]) -> list[str]:
        commits = [f"sets/{shard}.json" for shard in self.use("sets", keys)]
        super().remove(*commits)  # an earlier build may have left others here
        self.fetch(*commits)
        left = [s for s, key in keys.items() if stages.read_json(self.work / f"sets/{s}.json").get("key") != key]
        self.remove(*(f"sets/{shard}.json" for shard in left))  # they describe files that are replaced now
        return left

    def send(self, *names: str) -> None:
        files = [name for name in names if not name.endswith("/")]
        for folder in (name for name in names if name.endswith("/")):
            files += [f"{folder}{path.name}" for path in sorted((self.work / folder).iterdir())]
        _in_parallel(lambda name: self._fs.put_file(str(self.work / name), f"{self._there}/{name}"), files)

    def fetch(self, *names: str) -> None:
        _in_parallel(lambda name: _fetch(f"{self.url}/{BUILDS}/{name}", self.work / name), names)

    def remove(self, *names: str) -> None:
        super().remove(*names)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._there}/{name}")

    @property
    def _fs(self) -> Any:
        return file_system(self.url)[0]

    @property
    def _there(self) -> str:
        return file_system(f"{self.url}/{BUILDS}")[1]


def _fetch(url: str, to: Path) -> None:
    """Download the object ``url`` to ``to`` atomically; nothing if the file exists already or the object does not."""
    if not to.exists():
        with contextlib.suppress(FileNotFoundError):
            download_file(url, to)


def end_builds(url: str, but: str = "") -> None:
    """Remove the listings of all builds of the corpus ``url`` and its claim, so that steps still running upload nothing
    more. but: object in the folder of builds to keep, such as ``claim.json``. Raises OSError if the bucket fails."""
    fs, there = file_system(f"{url}/{BUILDS}")
    ended = [
        path for path in fs.find(there) if path.endswith((f"/{LISTING}", f"/{CLAIM}")) and path != f"{there}/{but}"
    ]
    for path in ended:
        with contextlib.suppress(FileNotFoundError):  # another process removes them, too
            fs.rm_file(path)


def remove_build_files(url: str, but: str = "") -> None:
    """Remove the folder of builds of the corpus ``url`` with the outputs of all steps; the corpus itself stays. The
    listings go first (``end_builds``). but: object in that folder to keep. Raises OSError if the bucket fails."""
    end_builds(url, but)
    fs, there = file_system(f"{url}/{BUILDS}")
    for _ in range(3):
        left = [path for path in fs.find(there) if path != f"{there}/{but}"]
        if not left:
            return
        with contextlib.suppress(FileNotFoundError):
            fs.rm(left)


def _check(fs: Any, build: str) -> None:
    if not fs.exists(f"{build}/{LISTING}"):
        raise BuildGone(f"{build} is no more: another process has made this corpus, or begun another one there")


def _in_parallel(move: Callable[[str], None], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(move, names))


def _run_remotely(
    url: str, name: str, environment: dict[str, str], step: Callable[..., Any], /, **arguments: Any
) -> Any:
    """Download a step's inputs to a temporary folder, run it, upload its outputs. Raises BuildGone, OSError."""
    os.environ.update(environment)
    fs, corpus = file_system(url)
    with scratch_folder() as folder:
        build, there = folder / BUILDS, f"{corpus}/{BUILDS}"
        for inner in stages.FOLDERS:
            (build / inner).mkdir(parents=True)
        for needed in stages.NEEDS[step](build, **arguments):
            wanted = [needed]
            if needed.endswith("/"):
                wanted = [path.removeprefix(there).lstrip("/") for path in fs.find(f"{there}/{needed.rstrip('/')}")]
            for one in wanted:
                (build / one).parent.mkdir(exist_ok=True)
                _fetch(f"{url}/{BUILDS}/{one}", build / one)
        result = step(build, **arguments)
        _check(fs, f"{there}/{name}")
        for made in stages.GIVES[step](build, **arguments):
            fs.put_file(str(made), f"{corpus}/{made.relative_to(folder).as_posix()}")
    return result
