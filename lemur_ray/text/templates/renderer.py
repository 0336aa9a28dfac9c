"""Rendering in another process, which is killed where a template does not end; one for all threads of this process.

A template that loops, grows, recurses or wants files and connections becomes one error that says so; the next request
gets a new process. Knows nothing of messages: values go in, text comes out.
"""

from __future__ import annotations

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
"""Of computing for one text; milliseconds are usual."""
MEMORY_BYTES = 2**29
"""More than a process has that renders nothing."""
MOST_CHARACTERS = 2**24
"""Of one text."""
PATIENCE_S = 60.0
"""Until a process that neither computes nor answers is given up."""
_LONGEST_MESSAGE = 2000


@dataclass(frozen=True)
class Rendered:
    """A text, and from where to where the assistant speaks in it, if the template says so."""

    text: str
    spans: tuple[Span, ...] = ()


def render(template: str, values: Sequence[Mapping[str, Any]], placeholders: Sequence[str] = ()) -> list[Rendered]:
    """The template with each of these values. Raises TemplateError about the first that gives no text.

    placeholders: characters that stand for others: they stay themselves where JSON is written in ASCII alone.
    """
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
    """Started when it is first needed, and again after it had to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One answer each, up to the first that says what is wrong. Raises TemplateUnusable where none came."""
        line = json.dumps(asked).encode() + b"\n"
        with self._lock:
            child = self._child if self._child is not None and self._child.poll() is None else self._start()
            try:
                answers: list[dict[str, Any]] = json.loads(
                    self._exchanged(child, line, PATIENCE_S + 2 * SECONDS * len(asked))
                )
                return answers
            except (OSError, ValueError) as error:
                raise TemplateUnusable(f"the chat template cannot be used: {self._ended(child)}") from error

    def close(self) -> None:
        with self._lock:
            if self._child is not None:
                self._ended(self._child)

    def forget(self) -> None:
        """In a process that was forked: the child is the other one's."""
        self.__init__()  # type: ignore[misc]

    def _start(self) -> subprocess.Popen[bytes]:
        program = str(Path(__file__).with_name("render_process.py"))
        # What this process imports from, and nothing else of its environment: there may be keys in it.
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
        """The answer's line. Raises OSError or ValueError where there is none."""
        assert child.stdin is not None
        assert child.stdout is not None
        deadline = time.monotonic() + patience_s
        child.stdin.write(line)  # the process reads a request whole before it does anything
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
        """End the process; returns why it ended, if that was its own doing."""
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
