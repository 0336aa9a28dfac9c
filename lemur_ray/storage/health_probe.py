"""Run a function whose bucket client has no timeout for as long as the bucket responds to health probes.

tensorstore retries silently for many minutes. How long a transfer may last is unknown, but the bucket can be probed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from lemur_ray.storage.conditional_writes import read_version
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.retry_policy import request_timeout_s

_T = TypeVar("_T")


def run_while_reachable(url: str, do: Callable[[], _T]) -> _T:
    """Call ``do`` and return its result or raise its error; meanwhile probe whether the bucket of ``url``, if it is
    one, responds. Raises OSError if a probe times out; ``do``, which runs in a thread, is then abandoned, and the
    caller should end the process."""
    if not is_bucket(url):
        return do()
    result = Future[_T]()

    def run() -> None:
        try:
            result.set_result(do())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="run while reachable", daemon=True).start()
    while not wait([result], request_timeout_s() / 10).done:
        read_version(f"{url}/.probe")  # one request, also for an object that is not there, and no listing
    return result.result()
