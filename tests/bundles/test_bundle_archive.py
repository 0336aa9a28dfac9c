"""An archive is a function of what it holds, comes back as it was, and takes nothing that means another thing there."""

from __future__ import annotations

import os
import socket
import tarfile
import tempfile
from pathlib import Path

import pytest

from lemur_ray.storage.bundles.archive import pack, unpack
from lemur_ray.storage.bundles.bundle import BundleError


def filled(folder: Path) -> Path:
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "b.txt").write_text("b")
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o777)
    (folder / "b.txt").chmod(0o400)
    (folder / "sub" / "same").hardlink_to(folder / "b.txt")
    (folder / "sub" / "link").symlink_to("../b.txt")
    (folder / "sub" / "ümlaut").write_bytes(bytes(range(256)))
    os.utime(folder / "b.txt", (1_000_000_000, 1_000_000_000))
    return folder


def test_the_same_content_is_the_same_archive_wherever_it_lies_and_whenever_it_was_made(tmp_path: Path):
    one, two = filled(tmp_path / "one"), filled(tmp_path / "elsewhere" / "two")
    os.utime(two / "sub", (1, 1))
    assert pack(one, tmp_path / "1.tar") == pack(two, tmp_path / "2.tar")
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()
    assert pack(one, tmp_path / "3.tar", dated=True) != pack(two, tmp_path / "4.tar", dated=True)
    (two / "sub" / "empty").rmdir()
    assert pack(one, tmp_path / "1.tar") != pack(two, tmp_path / "2.tar")


def test_names_modes_links_bytes_and_where_asked_for_times_come_back(tmp_path: Path):
    pack(filled(tmp_path / "from"), tmp_path / "a.tar", dated=True)
    unpack(tmp_path / "a.tar", tmp_path / "to", "a bundle")
    for path in sorted((tmp_path / "from").rglob("*")):
        there = tmp_path / "to" / path.relative_to(tmp_path / "from")
        assert there.lstat().st_mode == path.lstat().st_mode, path
        if path.is_symlink():
            assert os.readlink(there) == os.readlink(path)
        else:
            assert int(there.stat().st_mtime) == int(path.stat().st_mtime), path
        if path.is_file():
            assert there.read_bytes() == path.read_bytes()
    assert len(list((tmp_path / "to").rglob("*"))) == len(list((tmp_path / "from").rglob("*")))


def test_a_file_alone_is_an_archive_of_its_name_also_behind_a_link(tmp_path: Path):
    (tmp_path / "real.gz").write_text("x")
    (tmp_path / "run.json.gz").symlink_to(tmp_path / "real.gz")
    pack(tmp_path / "run.json.gz", tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert [(m.name, m.isreg()) for m in tar] == [("run.json.gz", True)]


@pytest.mark.parametrize("target", ["/etc/hostname", "../../outside", "../from/../../outside", "out/hostname"])
def test_a_link_that_leads_out_is_refused_with_its_name(tmp_path: Path, target: str):
    folder = filled(tmp_path / "from")
    (folder / "out").symlink_to("/etc")
    (folder / "sub" / "bad").symlink_to(target)
    if target != "out/hostname":
        (folder / "out").unlink()
    with pytest.raises(BundleError, match=r"(bad|out): a link to .*, which is outside of what is shipped"):
        pack(folder, tmp_path / "a.tar")


def test_a_socket_a_pipe_a_device_and_a_folder_without_files_are_refused(tmp_path: Path):
    folder = filled(tmp_path / "from")
    os.mkfifo(folder / "pipe")
    with pytest.raises(BundleError, match="pipe: is a pipe; only files"):
        pack(folder, tmp_path / "a.tar")
    (folder / "pipe").unlink()
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as one:
        one.bind(f"{short}/s")
        with pytest.raises(BundleError, match="s: is a socket; only files"):
            pack(Path(short), tmp_path / "a.tar")
    with pytest.raises(BundleError, match="null: is a device"):
        pack(Path("/dev/null"), tmp_path / "a.tar")
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(BundleError, match="there is no file in it"):
        pack(tmp_path / "empty", tmp_path / "a.tar")
    with pytest.raises(BundleError, match="is not there"):
        pack(tmp_path / "gone", tmp_path / "a.tar")


def test_an_archive_that_would_write_elsewhere_is_not_unpacked(tmp_path: Path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"))
    with pytest.raises(BundleError, match="the bundle: cannot be unpacked"):
        unpack(tmp_path / "a.tar", tmp_path / "to", "the bundle")
    assert not (tmp_path / "escaped").exists()
