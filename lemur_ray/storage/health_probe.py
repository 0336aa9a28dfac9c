"""Run a function whose bucket client has no timeout for as long as the bucket responds to health probes.

tensorstore retries silently for many minutes. How long a transfer may last is unknown, but the bucket can be probed."""

import threading
from collections.abc import Callable
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

    threading.Thread(target=run, name="run while reachable", daemon=True).start()
    while not ended.wait(request_timeout_s() / 10):
        read_version(f"{url}/.probe")  # one request, also for an object that is not there, and no listing
    if errors:
        raise errors[0]
    return results[0]
