"""InterCode-Bash: carry out a task with shell commands; every attempt is answered with its output and reward.

The gold command runs first, in the same sandbox, which is then reset, and verified by hash. Its changes and output are
the reference for the model's commands. The grader lists the file tree itself (``listing``). Since observations
contain the reward, this is an oracle-feedback setting, and reports must say so. The episode ends at reward 1 exactly,
at ``skip``, or after ``max_steps`` turns; its score is the best reward of any turn. Protocol: princeton-nlp/intercode
c3e46d8; a model sees the last seven messages."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from envs.intercode.recording import recorded_episode
from envs.intercode.shell.shell_reply import parse_bash
from envs.intercode.shell.terminal import Output, Terminal
from envs.intercode.system_prompts import SYSTEM
from envs.text_env import Opening, TextEnv, Turn, check_texts
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.grading.files import Entry, Tree, bash_reward
from lemur_ray.sandbox.sandbox import Limits, Sandbox, SandboxFileError, SandboxSpec
from lemur_ray.sandbox.warm_pool import shared_pool

DIALOGUE_LIMIT = 7
SHOWN_CHARS = 1000
LIMITS = Limits(time_s=10.0, patience_s=30.0)
SHELL: tuple[str, ...] = ("/bin/bash",)
OLD_SHELL = ("/bin/bash", "+O", "globskipdots")
"""Bash since 5.2 leaves ``.`` and ``..`` out of ``.*`` by default; upstream's is 5.1."""
ABSENT = ("/usr/bin/c++",)
"""Programs that upstream's image lacks, and that a task looks for."""


class InterCodeBashEnv(TextEnv):
    """InterCode-Bash as an environment. Options of ``reset``:

    - ``question``, ``gold`` (a command), ``trees`` (absolute path inside -> what of the host is copied there),
      ``rootfs`` (a root file system for the sandbox, default this machine's own ``/usr``), ``backend``;
    - ``compat`` (as upstream: quoting, lower case, file comparison, environment variables, and an old shell);
    - ``file_system`` (1 to 4; upstream's images have it in a variable);
    - ``recorded`` ("strict"): replies are the actions of a recording, used without parsing;
    - ``recording``, ``index``: with ``compat``, the episode whose gold output may have lost its beginning (see
      ``cut_as_recorded``); ``database_id`` (not read: identifies the data)."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"question", "gold", "trees", "file_system", "rootfs", "backend", "compat", "recorded", "recording", "index"}
        | {"database_id"}
    )
    default_max_steps: ClassVar[int] = 10

    def begin(self, options: Mapping[str, Any]) -> Opening:
        check_texts(options, "question", "gold")
        if options.get("recorded") == "grading":
            raise ValueError("a recording of InterCode-Bash holds no file trees to grade: replay it with strict")
        self._question, self._gold_command = options["question"], options["gold"]
        self._compat, self._recorded = bool(options.get("compat")), bool(options.get("recorded"))
        self._file_system = int(options.get("file_system", 1))
        self._best = 0.0
        spec = SandboxSpec(
            trees={inside: Path(source) for inside, source in options["trees"].items()},
            rootfs=Path(options["rootfs"]) if options.get("rootfs") else None,
            limits=LIMITS,
            as_root=True,
            writable_root=True,
            masked=ABSENT if self._compat else (),
        )
        self._pool = shared_pool(spec, options.get("backend", "bwrap"))
        self._sandbox = self._pool.take()
        self.opened.callback(self._pool.give_back, self._sandbox)
        self._shell: tuple[str, ...] = SHELL
        if self._compat and self._sandbox.exec([*OLD_SHELL, "-c", "true"], cwd="/").ok:
            self._shell = OLD_SHELL
        self._before = listing(self._sandbox)
        self._gold_output, self._gold_tree = self._run_gold(self._gold_command)
        if self._compat and self._recorded and options.get("recording"):
            self._gold_output = cut_as_recorded(self._gold_output, recorded_episode(options).gold_output)
        self._terminal = self._new_terminal("agent")
        system = SYSTEM["bash"].format(max_turns=self.max_steps)
        return Opening(f"Task: {self._question}\nYour first command?", system, dialogue_limit=DIALOGUE_LIMIT)

    def respond(self, reply: str) -> Turn:
        if reply.strip().lower() == "skip":
            return Turn("Skipped.", "skip", valid=True, finished=True, reward=0.0, score=self._best)
        action = reply if self._recorded else parse_bash(reply, compat=self._compat)
        if not action.strip():
            observation = "No command was found in your reply. Answer with one command: ```bash ... ```"
            return Turn(observation, None, valid=False, reward=0.0, score=self._best)
        output = self._terminal.run(action)
        if output.destroyed:
            outcome = Outcome.SANDBOX_DESTROYED
            return Turn(output.text, action, valid=True, finished=True, reward=0.0, score=0.0, outcome=outcome)
        try:
            reward = self._reward_of(output)
        except SandboxFileError as error:  # its own doing: paths too long, or too many
            output, reward = replace(output, text=f"{output.text}\nThe files cannot be compared: {error}"), 0.0
        self._best = max(self._best, reward)
        observation = f"Output: {shown(output.text)}\nReward: {reward:g}\nThe task was: {self._question}\nTry again."
        return Turn(observation, action, output.understood, solved=reward == 1, reward=reward, score=self._best)

    def _run_gold(self, gold: str) -> tuple[str, Tree]:
        """Run the gold command: its output and the file tree that it leaves. Resets the sandbox."""
        output = self._new_terminal("judge").run(gold)
        if output.destroyed:
            raise ValueError(f"gold command {gold!r} destroys its sandbox: {output.text}")
        tree = listing(self._sandbox)
        self._sandbox.reset()
        # Upstream shows nothing where its own quoting breaks the gold.
        return output.text if output.understood else "", tree

    def _reward_of(self, output: Output) -> float:
        after = listing(self._sandbox)
        return bash_reward(self._before, after, output.text, self._gold_tree, self._gold_output, compat=self._compat)

    def _new_terminal(self, who: str) -> Terminal:
        env = _upstream_environment(who, self._file_system) if self._compat else None
        return Terminal(self._sandbox, "/", compat=self._compat, limits=LIMITS, env=env, shell=self._shell)

    def hints(self) -> dict[str, Any]:
        """For scripted policies: the gold command as the expert's reply, and admissible harmless commands."""
        return {
            "expert": f"```bash\n{self._gold_command}\n```",
            "admissible": ["ls -la /", "pwd", "find / -maxdepth 1"],
        }


def _upstream_environment(who: str, file_system: int) -> dict[str, str]:
    """Environment variables of an upstream container. ``who`` (agent or judge) determines only the host name."""
    host = hashlib.sha256(who.encode()).hexdigest()[:12]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    names = {"HOSTNAME": host, "script": f"setup_nl2b_fs_{file_system}.sh", "HOME": "/root"}
    return {**names, "file_system_version": str(file_system), "PATH": path}


def cut_as_recorded(output: str, recorded: str | None) -> str:
    """The gold command's output without a beginning that upstream's log lost; unchanged if the log shows no such loss.
    Some logs have only the end of what the gold printed ("e" instead of "/workspace"), and models were compared with
    that end. If the logged end is blank, at most two characters may be missing. ``recorded``: the logged output, None
    without one."""
    if not recorded or not output.endswith(recorded):
        return output
    return recorded if recorded.strip() or len(output) - len(recorded) <= 2 else output


def shown(text: str) -> str:
    """Output as a model sees it: its first 1000 characters (then "..."), or "No output" if it is blank."""
    if not text.strip():
        return "No output"
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."


# fmt: off
IGNORED = (
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "opt", "proc", "root", "run",
    "sbin", "srv", "sys", "usr", "var",  # by upstream's repository
    "work", "inside", "generation", "base", ".git",  # ours alone
)
# fmt: on


def listing(sandbox: Sandbox) -> dict[str, Entry]:
    """Entries of the sandbox's file tree by path. Raises SandboxFileError if paths are too long or too many."""
    return {path: Entry(kind, mode, content) for path, kind, mode, content in sandbox.listing(IGNORED)}
