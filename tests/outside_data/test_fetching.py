"""Fetching from a Hub that serves, fails, lies and refuses, through the clients that ask the real one."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path

import pytest

from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.checking import check
from lemur_ray.outside_data.fetching import UNFINISHED, FetchOptions, fetch
from lemur_ray.outside_data.source import DataSet, FetchError
from tests.outside_data.conftest import Fetch
from tests.outside_data.local_hub import COMMIT, CONTENT, GIT, HUB, Fault, LocalHub, source

BOTH = pytest.mark.parametrize("address", [HUB, GIT], ids=["hub", "git"])


@BOTH
def test_a_file_is_fetched_checked_and_lies_beside_a_note_of_where_it_came_from(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, address: str
) -> None:
    hub.put("a.bin", CONTENT)
    assert fetched(source(f"{address}a.bin")) == []
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT
    note = json.loads((tmp_path / "data/set/.provenance/a.bin.json").read_text())
    assert note.pop("fetched").endswith("+00:00")
    assert note == {
        "url": f"{address}a.bin", "revision": COMMIT, "sha256": hashlib.sha256(CONTENT).hexdigest(), "size": 200_000,
        "licence": "MIT", "stored": "plain", "accepted": "", "pinned": True,
    }  # fmt: skip
    asked = len(hub.requests)
    assert fetched(source(f"{address}a.bin")) == []
    assert len(hub.requests) == asked, "what is there is not asked for again"


@BOTH
@pytest.mark.usefixtures("waits")
def test_a_connection_that_breaks_goes_on_at_the_byte_where_it_broke(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("a.bin", CONTENT)
    hub.faults["a.bin"] = [Fault(after=50_000), Fault(after=50_000 if address == HUB else 0)]
    assert fetched(source(f"{address}a.bin")) == []
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT
    assert any("50000-" in headers.get("Range", "") for headers in hub.gets("a.bin"))


@BOTH
@pytest.mark.usefixtures("waits")
def test_what_came_before_the_network_was_lost_is_kept_and_the_same_fetch_goes_on(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("a.bin", CONTENT)
    hub.faults["a.bin"] = [Fault(after=50_000), *(Fault(after=0) for _ in range(60))]
    (failed,) = fetched(source(f"{address}a.bin"))
    assert "kept, the same command goes on" in failed
    assert not (tmp_path / "data/set/a.bin").exists(), "a half-fetched file never counts"
    assert check(source(f"{address}a.bin"), tmp_path / "data").status == "missing"
    hub.faults.clear()
    hub.requests.clear()
    assert fetched(source(f"{address}a.bin")) == []
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT
    begun = [int(headers["Range"].removeprefix("bytes=").partition("-")[0]) for headers in hub.gets("a.bin")]
    assert min(begun) == 50_000
    assert not list((tmp_path / "data" / UNFINISHED).glob("*.part*json"))


@pytest.mark.usefixtures("waits")
def test_a_server_that_goes_silent_is_left_and_asked_again(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 1.0)
    monkeypatch.setattr("lemur_ray.outside_data.web.STALLED_S", 1.0)
    hub.put("a.bin", CONTENT)
    hub.put("b.bin", CONTENT)
    hub.faults["a.bin"], hub.faults["b.bin"] = [Fault(after=1000, stall=True)], [Fault(after=1000, stall=True)]
    assert fetched(source(), source(f"{GIT}b.bin", path="set/b.bin")) == []
    assert (tmp_path / "data/set/a.bin").read_bytes() == (tmp_path / "data/set/b.bin").read_bytes() == CONTENT


@BOTH
def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(
    hub: LocalHub, fetched: Fetch, waits: list[float], address: str
) -> None:
    hub.put("a.bin", CONTENT)
    hub.faults["a.bin"] = [Fault(status=429, headers={"Retry-After": "37"})]
    assert fetched(source(f"{address}a.bin")) == []
    assert 37 <= max(waits) <= 38


@pytest.mark.usefixtures("waits")
def test_a_size_that_a_server_makes_up_is_found_out(hub: LocalHub, fetched: Fetch, tmp_path: Path) -> None:
    hub.put("a.bin", CONTENT)
    hub.faults["a.bin"] = [Fault(head=True, size=300_000), Fault(head=True, size=100_000)]
    assert fetched(source()) == []
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT
    hub.put("b.bin", CONTENT)
    hub.faults["b.bin"] = [Fault(head=True, size=300_000) for _ in range(20)]
    (failed,) = fetched(source(f"{HUB}b.bin", path="set/b.bin"))
    assert "of 300000 bytes" in failed or "cut short" in failed
    assert not (tmp_path / "data/set/b.bin").exists()


@pytest.mark.usefixtures("waits")
def test_two_versions_of_a_file_are_never_joined(hub: LocalHub, fetched: Fetch, tmp_path: Path) -> None:
    hub.put("a.bin", bytes(200_000))
    hub.faults["a.bin"] = [Fault(after=60_000), *(Fault(after=0) for _ in range(60))]
    assert fetched(source())
    hub.faults.clear()
    hub.put("a.bin", CONTENT)
    assert fetched(source()) == []
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT


@BOTH
def test_a_file_that_upstream_changed_is_refused_and_nothing_of_it_stays(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, address: str
) -> None:
    hub.put("a.bin", CONTENT + b"!")
    (failed,) = fetched(source(f"{address}a.bin", seen_in=1))
    assert "serves another file than was pinned" in failed
    assert "only one place publishes that checksum" in failed
    assert not (tmp_path / "data/set").exists()
    assert not list((tmp_path / "data" / UNFINISHED).glob("*.part"))


def test_a_file_without_a_published_checksum_is_held_to_the_one_of_its_first_fetch(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, said: list[str]
) -> None:
    hub.put("a.bin", CONTENT)
    loose = source(sha256="")
    assert fetched(loose) == []
    assert "written down" in said[-1]
    (tmp_path / "data/set/a.bin").write_bytes(b"spoiled")
    assert check(loose, tmp_path / "data").status == "differs"
    (tmp_path / "data/set/a.bin").unlink()
    hub.put("a.bin", CONTENT + b"!")
    (failed,) = fetched(loose)
    assert "another file than at the first fetch" in failed


def test_gated_data_is_explained_in_one_sentence_with_the_page_of_its_terms(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("a.bin", CONTENT)
    hub.gated.add("them/set")
    (failed,) = fetched(source())
    assert failed.endswith(
        f"them/set is gated (or private): accept its terms at {hub.url}/datasets/them/set and set HF_TOKEN to a token "
        "of the account that did"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    (failed,) = fetched(source())
    assert "the account of your token may not read it" in failed
    assert f"{hub.url}/datasets/them/set" in failed
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert fetched(source()) == []
    assert hub.token not in (tmp_path / "data/set/.provenance/a.bin.json").read_text()


def test_what_is_not_there_is_said_with_what_was_asked_for(hub: LocalHub, fetched: Fetch) -> None:
    hub.put("a.bin", CONTENT)
    other = "d" * 40
    told = fetched(
        source(f"{HUB}gone.bin", path="a"),
        source(f"hub:them/set@{other}/a.bin", path="b"),
        source(f"hub:them/none@{COMMIT}/a.bin", path="c"),
        source(f"{GIT}gone.bin", path="d"),
    )
    assert [line.partition(": ")[0] for line in told] == ["a", "b", "c", "d"], "one that fails stops no other"
    assert "has no gone.bin in them/set" in told[0]
    assert other in told[1]
    assert "no data set them/none" in told[2]
    assert "not there" in told[3]


def test_a_mirror_that_serves_another_commit_is_refused(hub: LocalHub, fetched: Fetch) -> None:
    hub.put("a.bin", CONTENT)
    hub.commit_header = "e" * 40
    (failed,) = fetched(source())
    assert f"serves commit {'e' * 40} of them/set, expected {COMMIT}" in failed


def test_an_unreachable_hub_is_said_with_its_address(
    fetched: Fetch, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    monkeypatch.setattr("lemur_ray.outside_data.transfer.TRIES", 2)
    for name in ("HF_ENDPOINT", "LEMUR_GIT_MIRROR"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    told = fetched(source(), source(f"{GIT}a.bin", path="b"))
    assert len(told) == 2
    assert all("127.0.0.1:9" in line for line in told)
    assert waits, "it was tried again"


@pytest.mark.usefixtures("waits")
def test_a_server_that_knows_no_ranges_is_read_from_the_beginning(
    hub: LocalHub, fetched: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.ranges = False
    for number, address in enumerate((HUB, GIT)):
        hub.put("a.bin", CONTENT)
        hub.faults["a.bin"] = [Fault(after=60_000)]
        assert fetched(source(f"{address}a.bin", path=f"set/{number}")) == []
        assert (tmp_path / f"data/set/{number}").read_bytes() == CONTENT


def test_terms_are_shown_and_must_be_accepted_before_anything_is_asked_for(
    hub: LocalHub, fetched: Fetch, tmp_path: Path
) -> None:
    hub.put("a.bin", CONTENT)
    strict = source(terms="no copies may be given away")
    with pytest.raises(FetchError, match=r"no copies may be given away.*--accept set"):
        fetched(strict)
    assert not hub.requests
    assert fetched(strict, accepted=("set",)) == []
    assert provenance.read(tmp_path / "data/set/a.bin")["accepted"] == "no copies may be given away"
    assert fetched(strict) == [], "what lies there was accepted or brought"


def test_a_withdrawn_set_names_its_substitute_and_one_that_is_made_by_hand_says_how(
    tmp_path: Path, fetched: Fetch
) -> None:
    with pytest.raises(FetchError, match="books: withdrawn; take pg19"):
        fetch([DataSet("books", "", withdrawn="withdrawn; take pg19")], FetchOptions(tmp_path))
    (failed,) = fetched(source("", by_hand="build the tree"))
    assert "by hand: build the tree" in failed


@pytest.mark.usefixtures("waits")
def test_two_fetches_of_one_file_do_not_disturb_each_other(hub: LocalHub, tmp_path: Path, fetched: Fetch) -> None:
    hub.put("a.bin", CONTENT)
    hub.faults["a.bin"] = [Fault(after=1000, stall=True)]
    first: list[list[str]] = []
    other = threading.Thread(target=lambda: first.append(fetched(source())))
    other.start()
    assert hub.served.wait(60)
    (failed,) = fetched(source())
    assert "is fetching it" in failed
    hub.ending.set()
    other.join(60)
    assert first == [[]]
    assert (tmp_path / "data/set/a.bin").read_bytes() == CONTENT


def test_the_fake_clock_of_these_tests_waits_for_nothing(waits: list[float]) -> None:
    began = time.monotonic()
    from huggingface_hub.file_download import time as clock

    clock.sleep(60)
    assert time.monotonic() - began < 30
    assert waits == [60]
