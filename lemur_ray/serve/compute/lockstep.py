"""One engine in several processes: a leader, and followers that make the same calls of their programs in the same
order.
Only the leader has the scheduler, the prefix tree and the requests; a follower has its part of the weights and the
cache. The leader sends every call before it makes the call itself, so that all devices run the same program. Arrays
that stay on the devices are referred to by their number since the last step. If a follower is lost, the engine fails;
if the leader is lost, its followers exit. Knows nothing of Ray."""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import Place
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.compute.drawing.slot_edits import RowEdits
from lemur_ray.serve.compute.drawing.step import RowOptions, StepResults
from lemur_ray.serve.compute.programs import Programs, device_bytes, load_weights, stage
from lemur_ray.serve.compute.sampling import Draw, Edits
from lemur_ray.serve.compute.weights import Form, Weights
from lemur_ray.serve.compute.wire import Line, called, decode, encode
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs
from lemur_ray.weights.open_model import OpenModel
from lemur_ray.weights.param_slices import Source

log = logging.getLogger(__name__)
T = TypeVar("T")

_FORMS = {form.__name__: form for form in (Place, Draw, Edits, RowEdits, RowOptions)}


class Group:
    """The leader's connections to the followers of an engine; a daemon thread for each receives its answers."""

    def __init__(self, lines: list[Line], version: str):
        """lines: a connection to each follower. version: of the weights, which must be the same at every follower."""
        self.on_loss: Callable[[EngineClosed], None] = lambda _: None
        """Called once, in a thread of its own, when a follower is lost."""
        self._version = version
        self._staged: tuple[object, str] = None, ""
        self._lines, self._answers = lines, [queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None]() for _ in lines]
        self._lost: EngineClosed | None = None
        self._closing, self._lock = False, threading.Lock()
        for rank in range(len(lines)):
            threading.Thread(target=self._listen, args=(rank,), name=f"follower {rank + 1}", daemon=True).start()

    def send(self, name: str, *arguments: Any, arrays: list[jax.Array] | None = None) -> None:
        """Send a call of the function ``name`` to every follower. arrays: the arrays on devices that arguments may
        refer to. Raises EngineClosed if a follower is lost."""
        message = encode(name, arguments, arrays or [])
        for rank, line in enumerate(self._lines):
            try:
                line.send(message)
            except OSError as error:
                self._lose(rank, repr(error))
        if self._lost is not None:
            raise self._lost

    def answers(self, name: str) -> list[tuple[Any, ...]]:
        """Wait for one answer of each follower, which must be called ``name``; returns their arguments, in the order of
        the followers.
        Raises EngineClosed if a follower is lost, ValueError if one answers with another name (an error)."""
        received = [answers.get() for answers in self._answers]  # all, before one of them raises
        for rank, answer in enumerate(received, 1):
            if answer is not None and answer[0] != name:
                raise ValueError(f"follower {rank}: {answer[1][0]}")
        if self._lost is not None:
            raise self._lost
        return [answer[1] for answer in received if answer is not None]

    def wait_until_warm(self, form: Form) -> None:
        """Wait until all followers have loaded and compiled. Raises EngineClosed if one is lost, and ValueError if one
        has other weights or another storage ``form`` of the matrices than the leader."""
        answers = self.answers("warm")
        self._check_version([version for version, _ in answers], self._version)
        if other := {theirs for _, theirs in answers} - {form}:
            raise ValueError(
                f"the matrices of other hosts are {', '.join(sorted(other))}, of this one {form}: install a C++ "
                "compiler on every host (apt-get install -y g++) or on none, or give --engine.no-native"
            )

    def stage(self, spec: str, version: str, own: Callable[[], T]) -> T:
        """Let the followers check the weights of ``spec`` for ``replace`` while ``own`` runs here; returns its result.
        For one thread at a time. Raises what ``own`` raises, EngineClosed if a follower is lost, and ValueError if one
        cannot read the weights or reads another version than the leader."""
        self._staged = None, ""
        self.send("stage", spec)
        try:
            try:
                mine = own()
            finally:
                answers = self.answers("staged")
            self._check_version([staged for (staged,) in answers], version)
        except Exception:
            self.send("drop")
            raise
        self._staged = mine, version
        return mine

    def drop(self) -> None:
        """Let the followers forget what they staged, and forget it here. Raises EngineClosed if a follower is lost."""
        self._staged = None, ""
        self.send("drop")

    def send_replace(self, new: object) -> None:
        """Let the followers use what they staged with ``new``, a result of ``stage``. Raises EngineClosed if the last
        result was another one, or if a follower is lost."""
        staged, version = self._staged
        if staged is not new:
            raise EngineClosed(f"other hosts have staged the weights {version or 'none'}, this one others")
        self.send("replace", version)

    @staticmethod
    def _check_version(versions: list[str], version: str) -> None:
        if wrong := set(versions) - {version}:
            raise ValueError(f"other hosts read the weights {', '.join(sorted(wrong))}, this one {version}: try again")

    def close(self) -> None:
        """Tell the followers to end; errors of lost connections are ignored."""
        self._closing = True
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.send(encode("close", (), []))

    def _listen(self, rank: int) -> None:
        try:
            while True:
                self._answers[rank].put(decode(self._lines[rank].receive(), []))
        except (EOFError, OSError, ValueError, LookupError) as error:
            self._lose(rank, repr(error))

    def _lose(self, rank: int, why: str) -> None:
        with self._lock:
            if self._lost is not None or self._closing:
                return
            self._lost = EngineClosed(f"follower {rank + 1} of {len(self._lines)} is lost ({why})")
        log.error("%s", self._lost)
        for answers in self._answers:
            answers.put(None)
        threading.Thread(target=self.on_loss, args=(self._lost,), daemon=True).start()


class LeadingPrograms(Programs):
    """The leader's programs: every call is also sent to the followers, which make the same call. group: connections to
    the followers; other arguments as for ``Programs``."""

    def __init__(self, group: Group, weights: Weights, config: ModelConfig, options: EngineOptions, devices: Devices):
        super().__init__(weights, config, options, devices)
        self._group, self._arrays = group, list[jax.Array]()

    def warm_up(self, threads: int = 2) -> None:
        super().warm_up(threads)
        self._group.wait_until_warm(self.form)

    def forward(self, tokens_RM: np.ndarray, place: Place, options: RowOptions | None = None) -> StepResults:
        self._group.send("forward", tokens_RM, place, options)
        self._arrays = []  # devices hold the logits of one step
        results = super().forward(tokens_RM, place, options)
        self._arrays = jax.tree.leaves(results)
        return results

    def write_slot(self, slot: int, is_new: bool, changes: np.ndarray) -> None:
        self._group.send("write_slot", slot, is_new, changes)
        super().write_slot(slot, is_new, changes)

    def run(self, name: str, rows: int, *arguments: Any) -> Any:
        self._group.send("run", name, rows, *arguments, arrays=self._arrays)
        results = super().run(name, rows, *arguments)
        self._arrays += jax.tree.leaves(results)
        return results

    def prompt_logprobs(self, hidden: jax.Array, row: int, next_ids_M: np.ndarray) -> TokenLogprobs:
        self._group.send("prompt_logprobs", hidden, row, next_ids_M, arrays=self._arrays)
        return super().prompt_logprobs(hidden, row, next_ids_M)

    def copy(self, source: int, target: int) -> None:
        self._group.send("copy", int(source), int(target))
        super().copy(source, target)

    def replace(self, new: Weights | Source) -> None:
        """As ``Programs.replace``; returns when every process has the new weights. Raises EngineClosed if a process
        does not have them, although some may."""
        self._group.send_replace(new)
        try:
            super().replace(new)
            self._group.answers("replaced")
        except ValueError as error:
            raise EngineClosed(f"the weights of a host are lost: {error}") from error


def follow(line: Line, spec: str, options: EngineOptions, load: Callable[[str], OpenModel]) -> None:
    """Run a follower in this process: make the leader's calls until it closes the group.
    spec: model to load, as in ``ServeJob.model``. load: opens a spec without reading its weights. If the connection is
    lost, the process exits with code 1. What loading, compiling and running raise is sent to the leader and raised."""
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    staged: list[tuple[str, Weights | Source]] = []
    devices = Devices.take(options.tensor_parallel)

    def prepare_to_replace(spec: str) -> None:
        try:
            model = load(spec)
            staged[:] = [(model.version, stage(model.source, options, devices, size))]
            answer = encode("staged", (model.version,), [])
        except Exception as error:  # the old weights stay: the leader decides
            answer = encode("failed", (repr(error),), [])
        line.send(answer)

    def listen() -> None:
        try:
            while True:
                message = line.receive()
                name = called(message)
                if name == "stage":
                    # Reading weights takes minutes, during which the old ones are used.
                    threading.Thread(target=prepare_to_replace, args=decode(message, [])[1], daemon=True).start()
                    continue
                if name == "drop":
                    staged.clear()
                    continue
                calls.put(message)
                if name == "close":
                    return
        except (EOFError, OSError):
            # The main thread may wait for devices of a lost process, from which nothing else would wake it.
            log.error("the leader is lost")
            os._exit(1)

    threading.Thread(target=listen, name="leader", daemon=True).start()
    try:
        model = load(spec)
        weights = load_weights(model.source, options, devices)
        size = device_bytes(weights)
        programs = Programs(weights, model.source.config, options, devices)
        del weights  # the programs own them, so that others take their place
        programs.warm_up(options.compile_threads)
        line.send(encode("warm", (model.version, programs.form), []))
        _make_calls(programs, calls, staged, line)
    except Exception as error:
        with contextlib.suppress(OSError):
            line.send(encode("failed", (repr(error),), []))
        raise


def _make_calls(
    programs: Programs, calls: queue.SimpleQueue[bytes], staged: list[tuple[str, Weights | Source]], line: Line
) -> None:
    """Make the leader's calls until it closes the group. Raises ValueError if it replaces the weights by a version that
    is not staged here: nothing is overwritten."""
    arrays: list[jax.Array] = []
    while True:
        name, arguments = decode(calls.get(), arrays, _FORMS)
        if name == "forward":
            arrays = []
            arrays = jax.tree.leaves(programs.forward(*arguments))
        elif name == "run":
            arrays += jax.tree.leaves(programs.run(*arguments))
        elif name in ("prompt_logprobs", "copy", "write_slot"):
            getattr(programs, name)(*arguments)
        elif name == "replace":
            version, new = staged.pop() if staged else ("none", None)
            if new is None or [version] != [*arguments]:
                raise ValueError(f"the leader uses the weights {arguments[0]}, but {version} are staged here")
            programs.replace(new)
            line.send(encode("replaced", (), []))
        else:
            return
