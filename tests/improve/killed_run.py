"""An improvement run in which a process is killed with SIGKILL at moments that its arguments name.

python -m tests.improve.killed_run START OUT MOMENT[,MOMENT...] process|ray|rloo|replicas|alone

A moment is ``NAME@ROUND``, or ``none``. This process dies at: ``opened`` (before anything is served), ``heldout`` (half
of the evaluation after the round), ``planned``, ``journal`` (traces are in the journal, their episodes not in the
ledger), ``half`` (of the round's episodes), ``traces`` (in their file, the journal still there), ``episodes`` (all are
in the ledger), ``recorded`` (as played), ``updating``, ``committed`` (the checkpoint is there, its record is not),
``unserved`` (before the swap), ``swapping`` (the swap is recorded alone), ``result`` (before result.json). A
process of the cluster dies at: ``actor``, ``replica``, ``host`` (one that is not the head, with all its processes; in
the middle of the round's episodes), ``learner``. ``alone`` is ``replicas`` in this process, without Ray.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from lemur_ray.improve import learner, loop, traces
from lemur_ray.improve.learner import Committed
from lemur_ray.improve.prepare import prepare
from lemur_ray.improve.rounds import Event, Rounds
from lemur_ray.improve.traces import Journal
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.on_ray.weights_record import Choice, WeightsRecord
from tests.improve.capital_game import SEQ_LEN, config_of
from tests.improve.in_process import InProcess

SEAMS = ("episodes@1", "recorded@1", "updating@1", "committed@1", "unserved@1", "half@2")
MOMENTS = (
    "opened@0", "heldout@0", "planned@1", "journal@1", "half@1", "episodes@1", "recorded@1", "updating@1",
    "swapping@1", "heldout@1", "planned@2", "half@2", "traces@2", "episodes@2", "recorded@2", "updating@2",
    "committed@2", "unserved@2", "heldout@2", "result@2",
)  # fmt: skip
"""In the order in which one run passes them."""
CLUSTER_PROCESSES = {"actor": "ray::_Actor", "replica": "ray::ServeReplica:improve-", "learner": "ray::_LearnerActor"}
"""Beginnings of their titles."""


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_process(kind: str) -> None:
    """Kill one process of the cluster that the parent of this process has started."""
    titles = {one: one.cmdline() for one in psutil.Process(os.getppid()).children(recursive=True)}
    chosen = [one for one, title in titles.items() if title and title[0].startswith(CLUSTER_PROCESSES[kind])]
    assert chosen, f"no {kind} among {titles}"
    chosen[0].kill()
    print(f"killed {kind}", flush=True)


def kill_host() -> None:
    """Kill all processes of a node other than the head, on which an actor plays or a replica serves."""
    kinds = (CLUSTER_PROCESSES["actor"], CLUSTER_PROCESSES["replica"])
    for one in psutil.Process(os.getppid()).children(recursive=True):
        if one.name() == "raylet" and "--head" not in one.cmdline():
            below = one.children(recursive=True)
            if any("".join(child.cmdline()[:1]).startswith(kinds) for child in below):
                for victim in (*below, one):
                    with contextlib.suppress(psutil.NoSuchProcess):  # a raylet ends with its agents
                        victim.kill()
                return
    raise AssertionError("no node but the head plays or serves")


def kill_at(moment: str, backend: Any) -> None:
    """Arrange for a process to be killed at a moment."""
    name, _, number = moment.partition("@")
    kill_in_records(name, int(number))
    kill_in_episodes(name, number)
    if name == "updating" and isinstance(backend, InProcess):
        to_devices, left = learner.to_devices, [2]

        def moved(*given: Any) -> Any:
            left[0] -= 1
            return die() if left[0] < 0 else to_devices(*given)

        learner.to_devices = moved
    elif name in ("updating", "learner"):
        after = die if name == "updating" else lambda: kill_process("learner")
        backend._learner.train = Remote(backend._learner.train, after)
    elif name == "opened":
        backend.serve = die
    elif name == "swapping":
        serve = backend.serve

        def served(commit: Committed) -> Any:
            if commit.step == 4 * int(number):
                add = WeightsRecord.add

                def added(record: WeightsRecord, choice: Choice) -> bool:
                    add(record, choice)
                    return die()  # type: ignore[return-value]

                WeightsRecord.add = added  # type: ignore[method-assign]
            return serve(commit)

        backend.serve = served
    elif name == "result":
        loop.write_json = die  # type: ignore[assignment]


def kill_in_records(name: str, of: int) -> None:
    append = Rounds.append

    def appended(self: Rounds, number: int, event: Event, **fields: Any) -> Any:
        if {"episodes": Event.PLAYED, "committed": Event.TRAINED}.get(name) is event and number == of:
            die()
        record = append(self, number, event, **fields)
        after = {"planned": Event.PLANNED, "recorded": Event.PLAYED, "unserved": Event.TRAINED}
        if after.get(name) is event and number == of:
            die()
        return record

    Rounds.append = appended  # type: ignore[method-assign]


def kill_in_episodes(name: str, number: str) -> None:
    extend, append, left = Ledger.extend, Journal.append, [1]

    def extended(self: Ledger, episodes: Any) -> int:
        count = extend(self, episodes)
        folder = "heldout" if name == "heldout" else "rounds"
        if self.path.parent.parts[-2:] == (folder, number) and len(self) >= (2 if name == "heldout" else 6) and left:
            if name in ("half", "heldout"):
                die()
            if name in ("actor", "replica", "host"):
                left.clear()
                if name == "host":
                    kill_host()
                else:
                    kill_process(name)
        return count

    def appended(self: Journal, ended: Any) -> None:
        append(self, ended)
        if name == "journal":
            die()

    Ledger.extend, Journal.append = extended, appended  # type: ignore[method-assign]
    save = traces.save_traces

    def saved(path: Path, *given: Any) -> None:
        save(path, *given)
        if name == "traces" and path.stem == number:
            die()

    traces.save_traces = saved


class Remote:
    """An actor's method after whose call something is done."""

    def __init__(self, method: Any, then: Callable[[], object]) -> None:
        self._method, self._then = method, then

    def remote(self, *given: Any) -> Any:
        reference = self._method.remote(*given)
        self._then()
        return reference


def main(start: str, out: str, moments: str, where: str) -> None:
    given: dict[str, Any] = {"games": 10}
    if where in ("rloo", "replicas", "alone"):
        given = {"algorithm": "rloo", "samples": 4, "games": 4}
    if where in ("replicas", "alone"):
        given |= {"replicas": 2, "eval_every": 1}
    config = config_of(Path(start), Path(out), eval_games=4, actors=1, **given)
    prepared = prepare(config)
    if prepared.open_folder() is not None:
        return
    options = EngineOptions(max_slots=8, cache_bytes=2**24, prefill_tiles=1, compile_threads=1)
    make: Callable[[], Any] = lambda: InProcess(prepared.learner, options)  # noqa: E731
    if where in ("ray", "replicas"):
        from lemur_ray.cluster.connection import connect
        from lemur_ray.improve.on_ray.backend import OnRay

        connect(log_to_driver=False)
        make = lambda: OnRay(prepared.learner, config.replicas)  # noqa: E731
    with make() as backend:
        for moment in moments.split(","):
            if moment != "none":
                kill_at(moment, backend)
        loop.ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, SEQ_LEN).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
