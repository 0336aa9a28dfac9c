"""InterCode-CTF: find the flag of a challenge with shell and Python, and submit it.

Only ``submit FLAG`` is graded, ignoring case; a wrong flag does not end the episode. The sandbox contains the flag only
where the challenge does. Protocol: princeton-nlp/intercode c3e46d8; a model sees the last five messages. Upstream's
prompt has three tasks of its own test set with their flags; this one has none."""

import importlib.util
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs.intercode.recording import recorded_episode
from envs.intercode.shell.bash_env import shown
from envs.intercode.shell.shell_reply import parse_ctf
from envs.intercode.shell.terminal import MALFORMED, Output, Terminal
from envs.intercode.system_prompts import SYSTEM
from envs.text_env import Opening, TextEnv, Turn, check_texts
from lemur_ray.agents.recording import RecordedTurn
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.sandbox.sandbox import Limits, SandboxSpec, open_sandbox

DIALOGUE_LIMIT = 5
LIMITS = Limits(time_s=10.0, patience_s=30.0)

PACKAGES = "/opt/packages"


def _crypto() -> dict[str, Path]:
    """Mount of pycryptodome, which solutions need: path in the sandbox -> folder. Empty if it is not installed."""
    spec = importlib.util.find_spec("Crypto")
    return {f"{PACKAGES}/Crypto": Path(spec.origin).parent} if spec and spec.origin else {}


class InterCodeCTFEnv(TextEnv):
    """InterCode-CTF as an environment. Options of ``reset``:

    - ``question``, ``gold`` (the flag), ``assets`` (a folder of the host, copied to ``/ctf/<number>``), ``number``;
    - ``backend`` of the sandbox;
    - ``recorded``: replies are the actions of a recording, used without parsing. "strict" runs them; "grading" runs
      nothing and shows the results in episode ``index`` of the file ``recording``;
    - ``compat``, ``offline``, ``database_id`` (not read: identify task and data)."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"question", "gold", "assets", "number", "backend", "recorded", "recording", "index", "compat", "offline"}
        | {"database_id"}
    )
    default_max_steps: ClassVar[int] = 10

    def begin(self, options: Mapping[str, Any]) -> Opening:
        check_texts(options, "question", "gold")
        self._gold = options["gold"]
        self._recorded = options.get("recorded", "")
        self._past: list[RecordedTurn] = []
        if self._recorded == "grading":
            self._past = list(reversed(recorded_episode(options).turns))
        else:
            home = f"/ctf/{int(options.get('number', 0))}"
            assets = Path(options["assets"]) if options.get("assets") else None
            sandbox = open_sandbox(
                SandboxSpec(
                    trees={home: assets} if assets else {},
                    mounts=_crypto(),
                    env={"PYTHONPATH": PACKAGES},
                    limits=LIMITS,
                    as_root=True,
                    tracing=True,  # gdb; a flag is submitted, so nothing is read out of this sandbox to be graded
                ),
                options.get("backend", "bwrap"),
            )
            self.opened.callback(sandbox.close)
            if assets is None:
                sandbox.exec(["/bin/mkdir", "-p", home], cwd="/")
            self._terminal = Terminal(sandbox, home, compat=False, limits=LIMITS)
        system = SYSTEM["ctf"].format(max_turns=self.max_steps)
        return Opening(f"Task: {options['question']}\nYour first action?", system, dialogue_limit=DIALOGUE_LIMIT)

    def respond(self, reply: str) -> Turn:
        recorded = self._past.pop() if self._past else None
        action = reply.strip() if self._recorded else parse_ctf(reply)
        words = action.split()
        if not words:
            return Turn("No action was found in your reply.", None, valid=False, reward=0.0)
        if action.lower() == "skip":
            return Turn("Skipped.", "skip", valid=True, finished=True, reward=0.0)
        if words[0].lower() == "submit":
            return self._submitted(action, words)
        if self._recorded == "grading":
            return Turn((recorded and recorded.observation) or "", action, valid=True, reward=0.0)
        output = self._run(action)
        if output.destroyed:
            outcome = Outcome.SANDBOX_DESTROYED
            return Turn(output.text, action, valid=True, finished=True, reward=0.0, outcome=outcome)
        return Turn(shown(output.text), action, output.understood, reward=0.0)

    def _submitted(self, action: str, words: list[str]) -> Turn:
        if len(words) < 2:
            return Turn("Nothing was submitted: submit FLAG.", action, valid=False, reward=0.0)
        if words[1].lower() == self._gold.lower():
            return Turn("That is the flag.", action, valid=True, solved=True, reward=1.0, score=1.0)
        return Turn("That is not the flag; keep trying.", action, valid=True, reward=0.0)

    def _run(self, action: str) -> Output:
        if not action.startswith(("python -c", "python3 -c")):
            return self._terminal.run(action)
        try:
            words = shlex.split(action)
        except ValueError:
            return Output(MALFORMED, understood=False)
        return self._terminal.argv(["/usr/bin/env", *words], self._terminal.cwd)

    def hints(self) -> dict[str, Any]:
        """For scripted policies: submission of the flag as the expert's action, and admissible harmless commands."""
        return {"expert": f"submit {self._gold}", "admissible": ["ls -la", "pwd", "cat *"]}
