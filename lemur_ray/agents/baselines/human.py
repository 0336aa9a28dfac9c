"""The human policy: prints each observation to a terminal and reads one reply per turn.

A reply is one line, or all lines up to the end of a code fence (```) that it opens. The end of input (Ctrl-D)
raises KeyboardInterrupt, which stops the run as Ctrl-C does; it can be resumed. Each turn prints the messages since
the last reply, with terminal escapes as text. Episodes are played one at a time."""

import io
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from lemur_ray.agents.messages import ChatReply, ChatRequest, Message
from lemur_ray.agents.recording import task_name

FENCE = "```"


def read_line() -> str:
    """Read one line of standard input, with its newline; an empty text at the end of input."""
    # Unbuffered: a thread that waits inside Python's own buffered stdin would not let the process end.
    return io.FileIO(0, closefd=False).readline().decode("utf-8", "replace")


class HumanPolicy:
    """A person as a policy. ``read_line`` returns a line with its newline, or an empty text at the end of input.
    ``out``: where messages are printed, by default stderr."""

    name = "human"
    wants_hints = False

    def __init__(self, read_line: Callable[[], str] = read_line, out: TextIO | None = None) -> None:
        self._read_line = read_line
        self._out = out or sys.stderr
        self._lock = threading.Lock()

    def reply(self, request: ChatRequest) -> ChatReply:
        """Print the new messages and read the person's reply. Raises KeyboardInterrupt at the end of input."""
        with self._lock:
            past = [i for i, message in enumerate(request.messages) if message.role == "assistant"]
            if request.turn == 0:  # earlier messages are worked examples then
                past = []
            if not past:
                self._say(f"\n=== {task_name(request.episode) if '|' in request.episode else request.episode}\n")
            for message in request.messages[past[-1] + 1 if past else 0 :]:
                self._say(_shown(message))
            self._say("> ")
            text = self._line()
            while text.count(FENCE) % 2:
                self._say(". ")
                text += self._line()
            return ChatReply(text.removesuffix("\n"))

    def _line(self) -> str:
        line = self._read_line()
        if not line:
            self._say("\n")
            raise KeyboardInterrupt
        return line

    def _say(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _shown(message: Message) -> str:
    text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in message.content)
    return f"--- {message.role}\n{text}\n" if message.role == "system" else f"{text}\n"
