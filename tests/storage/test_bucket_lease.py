"""One run in a bucket at a time, and of two groups of workers the newer one commits."""

import json
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from lemur_ray.storage import bucket_lease
from lemur_ray.storage.bucket_lease import BucketLease, LeaseConflict
from lemur_ray.storage.conditional_writes import read_version
from lemur_ray.storage.heartbeat import run_heartbeat
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import RunFolderError, check_writable
from tests.storage.bucket_server import Service

PATIENCE_S = 1.5
"""As a busy machine needs: the second looks before the first has taken over, and both say what they wait for."""


def test_of_two_that_find_a_dead_holder_one_takes_over(google: Service, capsys: pytest.CaptureFixture[str]) -> None:
    dead = BucketLease("gs://bucket/run", {"id": "dead", "host": "gone", "pid": 7})
    dead.take(0)
    won: list[str] = []
    together = threading.Barrier(2)

    def come(name: str) -> None:
        together.wait()
        try:
            BucketLease("gs://bucket/run", {"id": name}).take(PATIENCE_S)
            won.append(name)
        except LeaseConflict:
            pass

    threads = [threading.Thread(target=come, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    found = read_version("gs://bucket/run/.run.lease")
    assert found is not None
    assert json.loads(found[0])["holder"] == 2
    with pytest.raises(LeaseConflict, match=won[0]):
        dead.renew()  # it was only cut off, and comes back
    assert "process 7 on gone has not given it back: it is taken over if that" in capsys.readouterr().err


def test_a_lease_that_is_given_back_while_one_waits_for_it_is_taken() -> None:
    held = BucketLease("memory://lease/handed", {"id": "before"})
    held.take(0)
    next_one = BucketLease("memory://lease/handed", {"id": "next"})
    ending = threading.Timer(0.1, held.give_back)
    ending.start()
    next_one.take(60.0)
    ending.join()
    assert next_one.number == 2


def test_one_that_is_overtaken_while_it_asks_who_has_it_is_told_who(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own write whose answer was lost stands there, and then no more."""
    held = BucketLease("memory://lease/lost", {"id": "mine"})
    held.take(0)
    held.renew()
    answered = BucketLease("memory://lease/lost", {"id": "mine"})
    answered._record, answered._version = {"id": "mine", "holder": 1, "count": 7}, "of a write before"

    def read_and_lose(url: str) -> tuple[bytes, str] | None:
        found = read_version(url)
        monkeypatch.undo()
        BucketLease("memory://lease/lost", {"id": "another"}).take(0)
        return found

    monkeypatch.setattr(bucket_lease, "read_version", read_and_lose)
    with pytest.raises(LeaseConflict, match="another"):
        answered.renew()


def test_a_lease_that_is_given_back_may_be_taken_at_once_and_its_number_grows(google: Service) -> None:
    for number in (1, 2, 3):
        one = BucketLease("gs://bucket/run", {"id": str(number)})
        one.take(3600)
        one.renew()
        one.give_back()
    found = read_version("gs://bucket/run/.run.lease")
    assert found is not None
    assert json.loads(found[0])["holder"] == 3


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_a_host_whose_clock_is_wrong_takes_no_lease_that_is_counted_up(
    ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, ended = f"memory://{uuid.uuid4().hex}/run", threading.Event()
    holder = BucketLease(url, {"id": "holder"})
    holder.take(0)

    def count() -> None:
        while not ended.wait(0.02):
            holder.renew()

    counting = threading.Thread(target=count)
    counting.start()
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + ahead_s)
    try:
        with pytest.raises(LeaseConflict, match="holder"):
            BucketLease(url, {"id": "off"}).take(10.0)
    finally:
        ended.set()
        counting.join()


def test_a_beat_whose_answer_is_lost_keeps_the_lease(google: Service) -> None:
    one = BucketLease("gs://bucket/run", {"id": "one"})
    one.take(0)
    google.trouble(match="POST", lost=True)
    one.renew()
    one.renew()
    found = read_version("gs://bucket/run/.run.lease")
    assert found is not None
    assert json.loads(found[0])["count"] == 2


def test_a_group_of_workers_that_was_overtaken_commits_nothing_more(google: Service) -> None:
    cut_off = Fence("gs://bucket/run")
    cut_off.check()
    newer = Fence("gs://bucket/run")
    assert (cut_off.number, newer.number) == (1, 2)
    newer.check()
    with pytest.raises(Superseded, match="attempt 1 of gs://bucket/run was overtaken by attempt 2"):
        cut_off.check()


def test_a_bucket_that_is_missing_or_read_only_is_said_before_anything_begins(google: Service) -> None:
    with pytest.raises(RunFolderError, match="there is no bucket nowhere: make it first"):
        check_writable("gs://nowhere/run")
    google.objects.read_only.add("bucket")
    with pytest.raises(
        RunFolderError,
        match=r"gs://bucket/run is not writable \(gs://bucket answered 403 .*these credentials may not do that",
    ):
        check_writable("gs://bucket/run")
    began = time.monotonic()
    with pytest.raises(RunFolderError, match="cannot be written to s3://"):
        check_writable("s3://bucket/run")
    assert time.monotonic() - began < 30
    assert not Path("s3:").exists()


WAITING = ("join", "_wait_for_tstate_lock")
"""Functions in which a thread is that waits for the end of another one."""


def test_a_heartbeat_that_fails_once_the_block_has_ended_disturbs_nothing() -> None:
    begun = threading.Event()

    def beat() -> None:
        begun.set()
        while sys._current_frames()[threading.main_thread().ident or 0].f_code.co_name not in WAITING:
            time.sleep(0.005)
        raise OSError("taken over")

    with run_heartbeat(beat, 0.001) as raised:
        assert begun.wait(30)
    assert [str(error) for error in raised] == ["taken over"]
