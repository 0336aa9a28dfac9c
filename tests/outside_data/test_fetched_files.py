"""What lies on the disk: files that were fetched, brought by somebody, spoiled or unpacked; a disk without space."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.checking import check
from lemur_ray.outside_data.source import FetchError
from tests.outside_data.conftest import Fetch
from tests.outside_data.local_hub import CONTENT, HUB, LocalHub, source


def test_no_space_is_said_before_the_first_byte(hub: LocalHub, fetched: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("a.bin", CONTENT)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(FetchError, match=r"1\.0 kB free, .* needed"):
        fetched(source())
    assert not hub.requests
    (failed,) = fetched(source(size=0))
    assert "1.0 kB free" in failed
    assert not hub.gets("a.bin"), "of a file whose size nobody declared, the server was asked how large it is"


@pytest.mark.parametrize("step", ["make", "provenance.write"])
def test_a_disk_that_fills_up_while_a_file_is_made_is_said_with_what_to_do_and_what_came_is_kept(
    step: str, hub: LocalHub, fetched: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("a.bin", CONTENT)
    with monkeypatch.context() as disk:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        disk.setattr(f"lemur_ray.outside_data.fetching.{step}", full)
        (failed,) = fetched(source())
    assert failed.endswith(
        "No space left on device: make space, or say another folder with --data; what came so far is kept"
    )
    came = len(hub.gets("a.bin"))
    assert fetched(source()) == []
    assert len(hub.gets("a.bin")) == came
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT


def test_a_file_that_somebody_brought_is_as_good_as_a_fetched_one(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, said: list[str]
) -> None:
    text = CONTENT.hex().encode()
    packed = source(content=text, path="set/a.gz", stored="gzip")
    hub.put("a.bin", text)
    assert fetched(packed) == []
    by_us = (tmp_path / "data/set/a.gz").read_bytes()
    assert gzip.decompress(by_us) == text
    place = tmp_path / "data/set/a.gz"
    provenance.place(place).unlink()
    place.write_bytes(gzip.compress(text, 1))  # packed by another program, with a date
    asked = len(hub.requests)
    assert check(packed, tmp_path / "data").status == "same"
    assert fetched(packed) == []
    place.write_bytes(by_us[:-9])
    assert check(packed, tmp_path / "data").status == "differs"
    assert len(fetched(packed)) == 1
    assert len(hub.requests) == asked, "what somebody brought is never written over"
    assert place.read_bytes() == by_us[:-9]


def test_a_pinned_file_that_is_spoiled_fails_with_both_checksums_and_what_to_do_and_the_others_come(
    hub: LocalHub, fetched: Fetch, tmp_path: Path
) -> None:
    hub.put("b.bin", CONTENT)
    (tmp_path / "data/set").mkdir(parents=True)
    (tmp_path / "data/set/a.bin").write_bytes(b"spoiled")
    (failed,) = fetched(source(), source(f"{HUB}b.bin", path="set/b.bin"))
    for part in ("set/a.bin: ", hashlib.sha256(b"spoiled").hexdigest(), hashlib.sha256(CONTENT).hexdigest()):
        assert part in failed
    assert "remove it and fetch again" in failed
    assert "\n" not in failed
    assert (tmp_path / "data/set/b.bin").read_bytes() == CONTENT
    (tmp_path / "data/set/a.gz").write_bytes(gzip.compress(CONTENT)[:-50])
    (failed,) = fetched(source(path="set/a.gz", stored="gzip"))
    assert f"expected sha256 {hashlib.sha256(CONTENT).hexdigest()}" in failed


def test_an_unpacked_folder_is_held_to_what_was_unpacked(hub: LocalHub, fetched: Fetch, tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("games/one/game.json", "games/two/game.json"):
            archive.writestr(name, "{}")
    hub.put("a.zip", out.getvalue())
    folder = source(f"{HUB}a.zip", content=out.getvalue(), path="set/games", stored="unzipped")
    assert fetched(folder) == []
    data, made = tmp_path / "data", tmp_path / "data/set/games"
    assert check(folder, data).status == "same"
    (made / "one/game.json").write_text("[]")
    assert check(folder, data).status == "differs"
    (made / "one/game.json").unlink()
    state = check(folder, data)
    assert state.status == "differs"
    assert "(1 files), expected" in state.why
    assert "(2 files, as unpacked)" in state.why
    (made / "two/game.json").unlink()
    assert check(folder, data).status == "missing", "folders without a file in them are nothing"
    assert fetched(folder) == []
    assert check(folder, data).status == "same"
