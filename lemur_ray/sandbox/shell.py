"""A bash that lives from command to command: directory, variables, functions and background jobs stay.

Commands reach it on a descriptor of their own, and the end of each is told on another with a 128-bit word that is new
for every step: neither a prompt nor printed text can pretend an end. Inside a command both descriptors are closed by
number, but the shell keeps copies of them meanwhile, and the word lies behind the command: code that looks for those
copies can read the word and report an end, with any exit code, before its own. That is no more than to exit early: what
it leaves running is still the sandbox's, and nothing is graded by an exit code of a shell. A shell that exits
(``exit``, ``exec``, ``set -e``) or that does not come back after its time is restarted, and the result says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lemur_ray.sandbox.sandbox import ExecResult, Sandbox, Session

# The status of the last command is handed on, as between the lines of one shell.
PROGRAM = """
__lemur_status() { return "$1"; }
__lemur_last=0
while IFS= builtin read -r -d '' -u 9 __lemur_command; do
  __lemur_status "$__lemur_last"
  builtin eval "$__lemur_command" </dev/null 8>&- 9<&-
  __lemur_last=$?
  IFS= builtin read -r -u 9 __lemur_word && builtin printf '%s %d\\n' "$__lemur_word" "$__lemur_last" >&8
done
"""
LOST = "the shell ended and was started again: its directory, variables and functions are lost"


@dataclass(frozen=True)
class ShellResult:
    """What a command did. ``restarted``: the shell ended with it; ``note`` says so in words for an observation."""

    result: ExecResult
    restarted: bool

    @property
    def exit_code(self) -> int | None:
        return self.result.exit_code

    @property
    def out(self) -> str:
        return self.result.out

    @property
    def err(self) -> str:
        return self.result.err

    @property
    def timed_out(self) -> bool:
        return self.result.timed_out

    @property
    def note(self) -> str:
        notes = [part for part in self.result.note.split("; ") if part and part != "session ended"]
        return "; ".join([*notes, *([LOST] if self.restarted else [])])


class Shell:
    """A persistent shell in ``sandbox``; a reset of the sandbox gives it a new start with the next command."""

    def __init__(self, sandbox: Sandbox, *, cwd: str = "/work", env: Mapping[str, str] | None = None) -> None:
        self._sandbox, self._cwd, self._env = sandbox, cwd, dict(env or {})
        self._session: Session | None = None

    def run(self, command: str, time_s: float | None = None) -> ShellResult:
        """Run ``command`` (any number of lines) to its end.

        NUL, which no shell can take, is left out. Raises SandboxDestroyed where the sandbox is gone already; if it goes
        with this command, the result says so (``result.alive``).
        """
        text = command.replace("\0", "").encode("utf-8", "replace")
        limits = self._sandbox.spec.limits
        limits = limits if time_s is None else replace(limits, time_s=time_s)
        result = self._started().step(text + b"\0", limits)
        restarted = "session ended" in result.note
        if restarted or not result.alive:
            self._session = None
        return ShellResult(result, restarted)

    def close(self) -> None:
        if self._session:
            self._session.close()
            self._session = None

    def _started(self) -> Session:
        if self._session is None or not self._session.alive:
            argv = ["bash", "--noprofile", "--norc", "-c", PROGRAM, "bash"]
            self._session = self._sandbox.session(argv, cwd=self._cwd, env=self._env)
        return self._session
