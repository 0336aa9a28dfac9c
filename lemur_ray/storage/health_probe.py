"""Waiting for a client that has no deadline of its own, for as long as its bucket answers others.

tensorstore asks again for many minutes and says nothing. How long a good transfer takes nobody knows, but whether the
bucket is there can be asked. Knows nothing of what is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.storage.retry_policy import request_timeout_s

_T = TypeVar("_T")


def run_while_reachable(url: str, do: Callable[[], _T]) -> _T:
    """What ``do`` returns or raises; for a local path nothing else.

    ``do`` runs in a thread of its own, which is left behind where the bucket stops to answer: end the process then.

    Raises:
        OSError: the bucket of ``url`` did not answer a small question within patience while ``do`` was under way.
    """
    if not is_bucket(url):
        return do()
    results: list[_T] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(do())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="while it answers", daemon=True).start()
    fs, path = file_system(url)
    while not ended.wait(request_timeout_s() / 10):
        fs.exists(path)
    if errors:
        raise errors[0]
    return results[0]
