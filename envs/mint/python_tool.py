"""MINT's Python tool: a Python session in a sandbox, whose tool functions are answered by this process.

The loop over cells is the sandbox's (``sandbox/inside/payload/repl.py``). A cell that calls a function ends a step of
the session with the call, and the next step's message is the answer. So the code runs without network while searches
run here, and it cannot reach the game. Limits are MINT's (mint-bench 3f7f12c): 30 s per cell, 2000 characters."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from envs.mint.tools import Tool
from lemur_ray.sandbox.exec_slots import lost_s
from lemur_ray.sandbox.inside.payload.harness_functions import ENOUGH_CHARS
from lemur_ray.sandbox.programs import framed, start
from lemur_ray.sandbox.python_repl import REPL, own_packages
from lemur_ray.sandbox.sandbox import ExecResult, Limits, Sandbox, SandboxDestroyed, SandboxSpec, Session
from lemur_ray.sandbox.untrusted_output import Bounds, UntrustedData, has_shape, untrusted_json
from lemur_ray.sandbox.warm_pool import WarmPool, shared_pool

TIME_S = 30.0
MAX_CHARS = 2_000
TRUNCATED = "...\n[Output Truncated]"
NO_OUTPUT = "[Executed Successfully with No Output]"
MAX_CALLS = 2_000
"""Maximum function calls of one cell, so that an endless loop cannot occupy the harness."""
_SLACK_S = 10.0
_START_S = 60.0
_MEMORY_BYTES = 2 * 2**30
_ANSWER = Bounds(16 * ENOUGH_CHARS, nodes=64, depth=3)
"""Limits of an answer as JSON: the output of a cell, or name and arguments of a call."""
_OUTPUT, _CALL = {"out": str}, {"call": str, "arguments": [str]}
_ARGUMENT_CHARS = 10_000
_PATIENCE_S = 30.0
"""Extra seconds for a machine that gives the cell no processor time."""
Call = Callable[[str, list[str]], str]


class PythonToolFault(Exception):
    """Raised if the Python tool fails through no fault of the policy, such as a sandbox that does not start."""


class SandboxedPython:
    """A Python session in a sandbox that runs cells (pieces of Python code) one after another; started at the first
    cell and again after a cell that killed it. Cells may call the functions ``tools``, which ``call(name, arguments)``
    answers in this process: a ToolRefused from it is raised in the cell, any other exception by ``run``. ``time_s``:
    limit of a cell in seconds."""

    def __init__(self, tools: Sequence[Tool], call: Call, *, time_s: float = TIME_S, backend: str = "bwrap") -> None:
        self._tools = {tool.name: list(tool.parameters) for tool in tools}
        self._call, self._time_s = call, time_s
        self._pool = sandboxes(backend)
        self._sandbox: Sandbox | None = None
        self._session: Session | None = None

    def run(self, code: str) -> str:
        """Run a cell and return its output, errors of the code included, as the model sees it. Raises SandboxDestroyed
        if the code ended its sandbox, PythonToolFault if the machine did, SandboxUnavailable if none can be opened, and
        what ``call`` raises except ToolRefused."""
        return shown(self._run(code))

    def _run(self, code: str) -> str:
        left_s = self._time_s + _SLACK_S
        message: dict[str, Any] = {"code": code, "time_s": self._time_s}
        for _ in range(MAX_CALLS + 1):
            began, lost = time.monotonic(), lost_s(threading.get_ident())
            answer, result = self._step(message, left_s)
            left_s -= time.monotonic() - began - (lost_s(threading.get_ident()) - lost)
            if self._session is None or not self._session.alive:
                answer = None  # output of a session that has ended is not trusted
            if has_shape(answer, _OUTPUT):
                return str(answer["out"])
            if answer is None or not has_shape(answer, _CALL):
                self._give_up()
                if result.blame == "infra":
                    raise PythonToolFault(f"the Python tool was lost: {result.note}")
                if not result.alive:
                    raise SandboxDestroyed(result.note, "policy")
                return _death_message(result, self._time_s)
            try:
                message = {"answer": self._answer(answer["call"], answer["arguments"])}
            except ToolRefused as error:
                message = {"error": str(error)}
            except BaseException:
                self._give_up()
                raise
        self._give_up()
        return f"Stopped after {MAX_CALLS} calls of tool functions."

    def _answer(self, name: str, arguments: list[str]) -> str:
        """Answer a tool call. Name and arguments may be forged: code can write to the session's protocol directly."""
        if len(arguments) != len(self._tools.get(name, ())) or name not in self._tools:
            raise ToolRefused(f"no function {name[:100]!r} of {len(arguments)} texts")
        if any(len(argument) > _ARGUMENT_CHARS for argument in arguments):
            raise ToolRefused(f"{name}: an argument of more than {_ARGUMENT_CHARS} characters")
        return self._call(name, arguments)

    def _step(self, message: dict[str, Any], time_s: float) -> tuple[Any, ExecResult]:
        """Send a message and return the parsed answer (None if it is malformed) and how the step ended."""
        session = self._session or self._start()
        bound = 2 * _ANSWER.size_bytes
        limits = Limits(time_s=max(time_s, 0.5), patience_s=_PATIENCE_S, output_bytes=bound, kill_at_bytes=bound)
        try:
            result = session.step(framed(message), limits)
        except SandboxDestroyed as error:
            self._give_up()
            if error.blame == "policy":
                raise
            raise PythonToolFault(str(error)) from error
        try:
            return untrusted_json(result.stdout.strip(), _ANSWER), result
        except UntrustedData:  # the model's code wrote into the channel: its cell is lost, and the shell with it
            return None, result

    def _start(self) -> Session:
        """Start a session and wait for its answer. Raises PythonToolFault, since no code of the model has run yet."""
        if self._sandbox is None:
            self._sandbox = self._pool.take()
        try:
            self._session, result = start(self._sandbox, REPL, Limits(time_s=_START_S))
            answer = None
            if result.exit_code == 0:
                answer, result = self._step({"functions": self._tools}, _START_S)
        except SandboxDestroyed as error:
            raise PythonToolFault(f"the Python tool does not start: {error}") from error
        if answer != {"out": ""}:
            self._give_up()
            problem = result.err[-500:] or result.note or f"it answered {result.out[:200]!r}"
            raise PythonToolFault(f"the Python tool does not start: {problem}")
        return self._session

    def _give_up(self) -> None:
        """End the session. The next cell gets a new one in a new sandbox."""
        self._session = None
        self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._sandbox is not None:
            self._pool.give_back(self._sandbox)
            self._sandbox = None


def sandboxes(backend: str) -> WarmPool:
    """The shared pool of sandboxes without network on ``backend``, with the packages of this interpreter."""
    mounts = own_packages()
    environment = {
        "PYTHONPATH": ":".join(mounts),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "Agg",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    limits = Limits(memory_bytes=_MEMORY_BYTES)
    spec = SandboxSpec(mounts=mounts, env=environment, limits=limits, run="mint")
    return shared_pool(spec, backend)


class ToolRefused(Exception):
    """Raised for a tool call that fails with an error that the model's code may catch."""


def shown(out: str) -> str:
    """A cell's output as MINT shows it, stripped: cut after 2000 characters, with a notice; ``NO_OUTPUT`` if empty."""
    text = out or NO_OUTPUT
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS] + TRUNCATED
    return text.strip()


def _death_message(result: ExecResult, time_s: float) -> str:
    if result.timed_out:
        return f"Timed out after {time_s:g} seconds. The interpreter was restarted."
    return f"The interpreter ended ({result.note or 'it exited'}) and was restarted."
