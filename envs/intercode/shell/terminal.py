"""Runs actions in a sandbox as InterCode does: each in a new shell, in the working folder of the one before.

With ``compat`` an action is put between double quotes unescaped, and the line is split by a shell lexer without
expansion, as upstream does: inner quotes vanish or cut it short. (princeton-nlp/intercode c3e46d8.)"""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lemur_ray.sandbox.sandbox import ExecResult, Limits, Sandbox, SandboxDestroyed

TIMED_OUT = "Command timed out"
MALFORMED = "Malformed command"
_BOTH_STREAMS = 'exec "$@" 2>&1'


@dataclass(frozen=True)
class Output:
    """Output of an action, both streams in order of writing. ``destroyed``: the action ended the sandbox;
    ``understood``: False if it could not be split into words, so that nothing was run."""

    text: str
    exit_code: int | None = None
    destroyed: bool = False
    understood: bool = True


class Terminal:
    """Runs actions one after another in ``sandbox``, each in a new shell in the folder ``cwd``, which a successful
    ``cd`` changes. ``compat``: split actions into words as upstream does. ``limits``: of each action."""

    def __init__(
        self,
        sandbox: Sandbox,
        cwd: str,
        *,
        compat: bool,
        limits: Limits,
        env: Mapping[str, str] | None = None,
        shell: Sequence[str] = ("/bin/bash",),
    ) -> None:
        """``env`` is the complete environment of all actions (None: the sandbox's), ``shell`` the shell's command."""
        self.sandbox = sandbox
        self.cwd = cwd
        self._compat = compat
        self._limits = limits
        self._shell = tuple(shell)
        self._prefix = ["/usr/bin/env", "-i", *(f"{k}={v}" for k, v in env.items())] if env is not None else []

    def run(self, action: str) -> Output:
        """Run one action and return its output; time-outs and crashes are part of it. Raises SandboxDestroyed if the
        machine, not the action, ended the sandbox."""
        target = self._changed_folder(action)
        try:
            argv = self._argv(action if target is None else f"cd {target}")
        except ValueError:
            return Output(MALFORMED, understood=False)
        output = self.argv(argv, "/" if target is not None else self.cwd)
        if target is not None and output.exit_code == 0:
            self.cwd = target
        return output

    def argv(self, argv: Sequence[str], cwd: str) -> Output:
        """Run a program in folder ``cwd``, without changing the terminal's folder. Raises SandboxDestroyed if the
        machine ended the sandbox."""
        if not argv or any("\0" in word for word in argv):
            return Output(MALFORMED, understood=False)
        try:
            done = self.sandbox.exec(
                ["/bin/bash", "-c", _BOTH_STREAMS, "-", *self._prefix, *argv], cwd=cwd, limits=self._limits
            )
        except SandboxDestroyed as error:
            if error.blame != "policy":
                raise
            return Output(str(error), destroyed=True)
        return _output(done)

    def _argv(self, action: str) -> list[str]:
        """Program and arguments that run an action. Raises ValueError if the lexer cannot split it."""
        if self._compat:
            return [*self._shell, *shlex.split(f'-c "{action.strip()}"')]
        return [*self._shell, "-c", action]

    def _changed_folder(self, action: str) -> str | None:
        """Target folder of an action that only changes the folder (``compat``: any that begins with cd), else None."""
        if not action.startswith("cd"):
            return None
        if self._compat:
            return os.path.normpath(os.path.join(self.cwd, action.partition("cd ")[2].strip()))
        try:
            words = shlex.split(action)
        except ValueError:
            return None
        if words[0] != "cd" or len(words) > 2 or any(sign in action for sign in ";&|<>$`*?~\n"):
            return None
        return os.path.normpath(os.path.join(self.cwd, words[1])) if len(words) == 2 else "/root"


def _output(done: ExecResult) -> Output:
    if done.timed_out:
        if done.blame == "infra":
            raise SandboxDestroyed(f"the machine gave a command no time: {done.note}", "infra")
        return Output(TIMED_OUT, None, destroyed=not done.alive)
    if not done.alive and done.blame != "policy":
        raise SandboxDestroyed(done.note, "infra")
    note = f"\n[{done.note}]" if done.note and done.blame == "policy" else ""
    return Output(done.out + note, done.exit_code, destroyed=not done.alive)
