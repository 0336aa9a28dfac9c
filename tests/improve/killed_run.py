"""An improvement run that ends itself with SIGKILL at a moment that its arguments name.

python -m tests.improve.killed_run START OUT SEAM process|ray|rloo

Seams: ``episodes`` (all of round 1 are in the ledger), ``recorded`` (its record is written), ``updating`` (half of its
updates are made), ``committed`` (the checkpoint is there, its record is not), ``unserved`` (before the swap), ``half``
(in the middle of round 2's episodes), ``none`` (never).
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemur_ray.improve import learner, loop
from lemur_ray.improve.prepare import prepare
from lemur_ray.improve.rounds import Event, Rounds
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.serve.config import EngineOptions
from tests.improve.capital_game import SEQ_LEN, config_of
from tests.improve.in_process import InProcess

SEAMS = ("episodes", "recorded", "updating", "committed", "unserved", "half")


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(seam: str, backend: Any) -> None:
    """Arrange for this process to be killed at a seam."""
    append, extend = Rounds.append, Ledger.extend

    def appended(self: Rounds, number: int, event: Event, **fields: Any) -> Any:
        before = {("episodes", Event.PLAYED): 1, ("committed", Event.TRAINED): 1}
        if before.get((seam, event)) == number:
            die()
        record = append(self, number, event, **fields)
        after = {("recorded", Event.PLAYED): 1, ("unserved", Event.TRAINED): 1}
        if after.get((seam, event)) == number:
            die()
        return record

    def extended(self: Ledger, episodes: Any) -> int:
        count = extend(self, episodes)
        if seam == "half" and self.path.parent.parts[-2:] == ("rounds", "2") and len(self) >= 6:
            die()
        return count

    Rounds.append, Ledger.extend = appended, extended  # type: ignore[method-assign]
    if seam == "updating":
        if isinstance(backend, InProcess):
            to_devices, left = learner.to_devices, [2]

            def moved(*given: Any) -> Any:
                left[0] -= 1
                return die() if left[0] < 0 else to_devices(*given)

            learner.to_devices = moved
        else:
            backend._learner.train = Remote(backend._learner.train)


class Remote:
    """An actor's method whose call is sent, after which this process dies."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def remote(self, *given: Any) -> None:
        self._method.remote(*given)
        die()


def main(start: str, out: str, seam: str, where: str) -> None:
    given = {"algorithm": "rloo", "samples": 4, "games": 4} if where == "rloo" else {"games": 10}
    config = config_of(Path(start), Path(out), eval_games=4, actors=1, **given)
    prepared = prepare(config)
    if prepared.open_folder() is not None:
        return
    options = EngineOptions(max_slots=8, cache_bytes=2**24, prefill_tiles=1, compile_threads=1)
    make: Callable[[], Any] = lambda: InProcess(prepared.learner, options)  # noqa: E731
    if where == "ray":
        from lemur_ray.cluster.connection import connect
        from lemur_ray.improve.on_ray.backend import OnRay

        connect(log_to_driver=False)
        make = lambda: OnRay(prepared.learner)  # noqa: E731
    with make() as backend:
        kill_at(seam, backend)
        loop.ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, SEQ_LEN).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
