"""Bundles on a host: fetched once by many processes, whole or not at all, within a limit; each fault is a sentence."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.host.file_lock import take
from lemur_ray.storage import bounded_cache
from lemur_ray.storage.bounded_cache import BoundedCache
from lemur_ray.storage.bundles import host_cache, store
from lemur_ray.storage.bundles.bundle import Bundle, BundleError
from lemur_ray.storage.bundles.host_cache import bundle_cache, unpacked_bundle
from lemur_ray.storage.bundles.store import fetch, publish

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def bundle(tmp_path: Path, lemur_home: Path) -> Bundle:
    """Of a folder that has been moved away since."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "x.txt").write_text("x" * 5000)
    found = publish(tmp_path / "data", str(tmp_path / "store"))
    (tmp_path / "data").rename(tmp_path / "moved")
    return found


def release(folder: Path) -> None:
    """As the end of this process does."""
    os.close(host_cache._locks.pop(folder))


def test_publishing_again_writes_nothing_and_mends_what_was_cut(tmp_path: Path, bundle: Bundle):
    archive = Path(bundle.url)
    assert archive == tmp_path / "store" / "bundles" / f"{bundle.digest}.tar"
    before = archive.stat().st_mtime_ns
    assert publish(tmp_path / "moved", str(tmp_path / "store")) == bundle
    assert archive.stat().st_mtime_ns == before
    archive.write_bytes(archive.read_bytes()[:100])
    publish(tmp_path / "moved", str(tmp_path / "store"))
    assert (unpacked_bundle(bundle, fetch) / "sub" / "x.txt").read_text() == "x" * 5000
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert not list(host_cache.cache_folder().glob(".*"))


def test_any_file_system_of_fsspec_is_a_store(tmp_path: Path, bundle: Bundle):
    found = publish(tmp_path / "moved", "memory://somewhere")
    assert found == Bundle(f"memory://somewhere/bundles/{bundle.digest}.tar", bundle.digest, bundle.size)
    assert (unpacked_bundle(found, fetch, tmp_path / "host") / "sub" / "x.txt").is_file()


def test_threads_and_processes_that_ask_at_once_fetch_once(tmp_path: Path, bundle: Bundle):
    fetched: list[str] = []

    def counted(one: Bundle, archive: Path) -> None:
        fetched.append(one.url)
        fetch(one, archive)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: unpacked_bundle(bundle, counted, tmp_path / "host"), range(16)))) == 1
    assert len(fetched) == 1
    code = (
        "import sys, os; from pathlib import Path; from lemur_ray.storage.bundles.bundle import Bundle\n"
        "from lemur_ray.storage.bundles import host_cache, store\n"
        "def counted(b, a): print('fetched', flush=True); store.fetch(b, a)\n"
        f"host_cache.unpacked_bundle({bundle!r}, counted, Path(sys.argv[1]))"
    )
    asking = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "other")], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert "".join(one.communicate()[0] for one in asking) == "fetched\n"
    assert [one.returncode for one in asking] == [0, 0, 0]


def test_what_was_published_and_is_cut_replaced_or_deleted_is_said_and_leaves_nothing(tmp_path: Path, bundle: Bundle):
    archive, whole = Path(bundle.url), Path(bundle.url).read_bytes()
    archive.write_bytes(whole[:-2000])
    with pytest.raises(BundleError, match=rf"{len(whole) - 2000} of {len(whole)} bytes came.*delete it and start"):
        unpacked_bundle(bundle, fetch)
    archive.write_bytes(whole[:-1] + b"x")
    with pytest.raises(BundleError, match="other bytes came, not what was published"):
        unpacked_bundle(bundle, fetch)
    archive.unlink()
    with pytest.raises(BundleError, match=r"is not there .*start the job again"):
        unpacked_bundle(bundle, fetch)
    assert [path.suffix for path in host_cache.cache_folder().iterdir()] == [".lock"]
    archive.write_bytes(whole)
    assert (unpacked_bundle(bundle, fetch) / "sub" / "x.txt").is_file()


def test_a_store_that_fails_is_asked_again_and_then_named(bundle: Bundle):
    attempts: list[int] = []

    def failing(one: Bundle, archive: Path) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("503")
        fetch(one, archive)

    def down(one: Bundle, archive: Path) -> None:
        raise ConnectionError("503")

    assert unpacked_bundle(bundle, failing, pause_s=0.0).is_dir()
    release(host_cache.cache_folder() / bundle.digest)
    shutil.rmtree(host_cache.cache_folder())
    with pytest.raises(BundleError, match=r"could not be fetched in 3 attempts \(ConnectionError: 503\)"):
        unpacked_bundle(bundle, down, pause_s=0.0)


def test_too_small_a_disk_is_an_error_that_names_the_bytes(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
):
    def full(one: Bundle, archive: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(BundleError, match=rf"{2 * bundle.size} bytes are needed for .*LEMUR_HOME"):
        unpacked_bundle(bundle, full)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 1000))
    with pytest.raises(BundleError, match=rf"{2 * bundle.size + 2**20} bytes are needed for .*, 1000 are free"):
        unpacked_bundle(bundle, fetch)
    with pytest.raises(BundleError, match=r"bytes are needed for .*moved, 1000 are free"):
        publish(tmp_path / "moved", str(tmp_path / "store"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_while_a_bundle_is_unpacked_is_an_error_and_nothing_half_is_left(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, code: int
):
    def full(self: tarfile.TarFile, path: Path, members: list[tarfile.TarInfo], **how: object) -> None:
        Path(path, "half").write_text("of it")
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as filling:
        filling.setattr(tarfile.TarFile, "extractall", full)
        with pytest.raises(
            BundleError, match=rf"{2 * bundle.size} bytes are needed for .*set LEMUR_HOME to a folder on"
        ):
            unpacked_bundle(bundle, fetch)
    assert [path.suffix for path in host_cache.cache_folder().iterdir()] == [".lock"]
    assert (unpacked_bundle(bundle, fetch) / "sub" / "x.txt").is_file(), "with room again the same bundle is had"


def test_the_longest_unused_goes_first_and_what_is_used_stays(tmp_path: Path, bundle: Bundle, monkeypatch):
    cache = tmp_path / "host"
    made = [bundle]
    for number in range(3):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "x").write_text(str(number) * 100_000)
        made.append(publish(tmp_path / f"d{number}", str(tmp_path / "store")))
    folders = [unpacked_bundle(one, fetch, cache) for one in made]
    for age, folder in enumerate(folders):
        os.utime(folder.with_name(f"{folder.name}.lock"), (age, age))
    release(folders[1])
    release(folders[2])
    (cache / f".making-{'0' * 64}").mkdir()
    monkeypatch.setenv(host_cache.LIMIT, "0.00025")
    bundle_cache(cache).make_room(0)
    assert [folder.is_dir() for folder in folders] == [True, False, True, True]
    bundle_cache(cache).make_room(10**6)
    assert [folder.is_dir() for folder in folders] == [True, False, False, True]
    assert not list(cache.glob(".*"))
    assert unpacked_bundle(made[1], fetch, cache).is_dir()


@pytest.mark.parametrize("named", ["many", "-1", "nan"])
def test_a_limit_that_is_none_is_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, named: str):
    monkeypatch.setenv(host_cache.LIMIT, named)
    with pytest.raises(BundleError, match=f"LEMUR_BUNDLES_GB={named}: expected a number of gigabytes"):
        unpacked_bundle(bundle, fetch)


def test_a_store_that_is_no_place_or_cannot_be_written_to_is_refused(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(store.VARIABLE, "store")
    with pytest.raises(BundleError, match="expected a URL such as gs://bucket/folder, or an absolute folder"):
        store.store_location()
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match=r"LEMUR_STORE=.*file cannot take the \d+ bytes of .*moved"):
        publish(tmp_path / "moved", str(tmp_path / "file"))


def test_two_processes_that_look_before_either_makes_an_entry_both_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads stand for them: locks of separately opened files exclude each other in one process, too."""
    both_looked, of_thread, made = threading.Barrier(2), threading.local(), list[int]()

    def take_after_both_looked(lock: int, **how: Any) -> bool:
        if not getattr(of_thread, "has_looked", False):
            of_thread.has_looked = True
            both_looked.wait(60)
        return take(lock, **how)

    def acquire() -> int:
        cache = BoundedCache(tmp_path / "cache", "LEMUR_BUNDLES_GB", BundleError)

        def make() -> None:
            made.append(1)
            time.sleep(0.5)
            (cache.folder / "entry").mkdir()

        return cache.acquire("entry", make)

    monkeypatch.setattr(bounded_cache, "_WAIT_S", 30.0)
    monkeypatch.setattr(bounded_cache, "take", take_after_both_looked)
    with ThreadPoolExecutor(2) as threads:
        locks = list(threads.map(lambda _: acquire(), range(2)))
    for lock in locks:
        os.close(lock)
    assert made == [1]
