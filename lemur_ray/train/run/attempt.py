"""One start (attempt) of a run: its seconds by item, and its records in ``goodput.jsonl``.

The training loop switches the stopwatch between items. Knows nothing of jax, of steps and of Ray."""

import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.train.run.goodput import SignsOfLife, Stopwatch, account


class RunAttempt:
    """Time accounting of one start of a run on one worker; the attempt begins when the object is made. Its records are
    appended to ``goodput.jsonl``."""

    def __init__(self, path: str, check: Callable[[], None] = lambda: None, **about: Any) -> None:
        """path: ``goodput.jsonl`` of the run; empty on workers that only measure. check: called before writes; raises
        if a newer attempt has taken the run over. about: fields of the first record."""
        self.began, self.check = time.monotonic(), check
        self.spent = Stopwatch()
        self.replayed_steps = 0
        """Number of steps that an earlier attempt had already taken."""
        self._signs = SignsOfLife(path, check=check) if path else None
        self._id = uuid.uuid4().hex[:12]
        if self._signs is not None:
            self._signs.write(attempt=self._id, **about)

    def sign(self, step: int, *, now: bool = False) -> None:
        """Append a record of the seconds so far, after ``step``, if the last one is old enough (1 s; 60 s in a bucket)
        or ``now`` is set."""
        if self._signs is not None and (now or self._signs.due()):
            self._signs.write(
                attempt=self._id, step=step, spent=self.spent.so_far(), replayed_steps=self.replayed_steps
            )

    def account(self) -> dict[str, Any]:
        """Seconds by item over all attempts of the run (``goodput.account``); empty on workers that only measure."""
        return account(self._signs.records) if self._signs is not None else {}

    def close(self) -> None:
        """Store the last records if possible; may be repeated."""
        if self._signs is not None:
            with contextlib.suppress(OSError, TrainingStopped):
                self._signs.close()
