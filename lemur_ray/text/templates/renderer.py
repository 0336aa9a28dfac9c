"""Render templates in a child process, shared by all threads, that is killed if a template does not terminate.

A template that loops, recurses, uses too much memory, or opens files or connections gives an error that names the
cause, and the next request starts a new process if that one has ended."""

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.text.chat_template import Span, TemplateError, TemplateRefused, TemplateUnusable

SECONDS = 2.0
"""Limit in seconds of CPU time for rendering one text; milliseconds are usual."""
MEMORY_BYTES = 2**29
"""Memory that the process may use in addition to that of an idle one."""
MOST_CHARACTERS = 2**24
"""Maximum number of characters of one rendered text."""
PATIENCE_S = 60.0
"""Seconds to wait for results, plus twice the CPU limit per text, before the process is killed."""
_LONGEST_MESSAGE = 2000


@dataclass(frozen=True)
class Rendered:
    """A rendered text, and the spans that the template marks as the assistant's by ``{% generation %}``."""

    text: str
    spans: tuple[Span, ...] = ()


def render(template: str, values: Sequence[Mapping[str, Any]], placeholders: Sequence[str] = ()) -> list[Rendered]:
    """Render the Jinja source ``template`` once for each mapping of variables. Raises TemplateError for a failure.
    placeholders: characters that ``tojson`` must not escape, as the caller replaces them afterwards."""
    shared = {"template": template, "kept": list(placeholders), "most_characters": MOST_CHARACTERS}
    answers = _PROCESS.ask([{**shared, "values": dict(one)} for one in values])
    return [_rendered(answer) for answer in answers]


def _rendered(answer: Mapping[str, Any]) -> Rendered:
    if "kind" not in answer:
        return Rendered(answer["text"], tuple((begin, end) for begin, end in answer["spans"]))
    reason = str(answer["error"])[:_LONGEST_MESSAGE]
    match answer["kind"]:
        case "refused":
            raise TemplateRefused(f"the chat template refuses this conversation: {reason}")
        case "beyond":
            raise TemplateUnusable(f"the chat template cannot be used: {reason}")
        case "broken":
            raise TemplateUnusable(f"the chat template is no Jinja template: {reason}")
        case _:
            raise TemplateError(f"the chat template cannot render this conversation: {reason}")


class _Process:
    """The child process that renders, started on demand and restarted after it has ended. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def ask(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Results of the requests, up to the first failure. Raises TemplateUnusable if the process ends or hangs."""
        line = json.dumps(requests).encode() + b"\n"
        with self._lock:
            child = self._child if self._child is not None and self._child.poll() is None else self._start()
            try:
                return list(json.loads(self._exchanged(child, line, PATIENCE_S + 2 * SECONDS * len(requests))))
            except (OSError, ValueError) as error:
                raise TemplateUnusable(f"the chat template cannot be used: {self._ended(child)}") from error

    def close(self) -> None:
        with self._lock:
            if self._child is not None:
                self._ended(self._child)

    def forget(self) -> None:
        """Reset this object in a forked process, as the child process belongs to the parent."""
        self.__init__()  # type: ignore[misc]

    def _start(self) -> subprocess.Popen[bytes]:
        program = str(Path(__file__).with_name("render_process.py"))
        # Only the import paths: the environment may contain secrets.
        places = os.pathsep.join(place for place in sys.path if place)
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-B", program, str(MEMORY_BYTES), str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": places, "LANG": "C.UTF-8"},
        )
        return self._child

    def _exchanged(self, child: subprocess.Popen[bytes], line: bytes, patience_s: float) -> bytes:
        """Send a line of requests and return the line of results. Raises OSError if none comes in ``patience_s``."""
        assert child.stdin is not None
        assert child.stdout is not None
        deadline = time.monotonic() + patience_s
        child.stdin.write(line)  # the process reads a whole request before it works on it
        child.stdin.flush()
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError  # an OSError, too
                if not (part := os.read(child.stdout.fileno(), 2**20)):
                    raise BrokenPipeError
                answer += part
        return bytes(answer)

    def _ended(self, child: subprocess.Popen[bytes]) -> str:
        """Kill the process if it still runs after 0.5 s; returns why it ended (CPU limit, timeout, memory) as text."""
        self._child = None
        with contextlib.suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]
        try:
            code = child.wait(0.5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            code = -signal.SIGKILL
        child.stdout.close()  # type: ignore[union-attr]
        if code == -signal.SIGPROF:
            return f"it does not come to an end within {SECONDS:g} s of computing"
        if code == -signal.SIGKILL:
            return f"it did not answer within {PATIENCE_S:g} s"
        return f"its process ended by itself (code {code}): it needs more memory than it is given, or nests too deeply"


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.forget)
