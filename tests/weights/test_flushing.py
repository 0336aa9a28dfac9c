"""Flushing while writing: in time, and no error of the disk is lost."""

import threading

import pytest

from lemur_ray.weights.safetensors_writer import EVERY_BYTES, Flusher


def test_data_is_flushed_on_the_way_and_the_rest_at_the_end() -> None:
    flushes = threading.Semaphore(0)
    flusher = Flusher(flushes.release)
    flusher.wrote(EVERY_BYTES - 1)
    assert not flushes.acquire(blocking=False)
    flusher.wrote(1)
    assert flushes.acquire(timeout=30)
    flusher.close()
    assert flushes.acquire(blocking=False)
    assert not flushes.acquire(blocking=False)


def test_an_error_on_the_way_is_raised_although_the_last_flush_succeeds() -> None:
    answers = iter([OSError("the disk is gone"), None])

    def flush() -> None:
        if (error := next(answers)) is not None:
            raise error

    flusher = Flusher(flush)
    flusher.wrote(EVERY_BYTES)
    with pytest.raises(OSError, match="the disk is gone"):
        flusher.close()
