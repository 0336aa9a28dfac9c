"""Harbor-v0: a task folder, played by bash commands in a container of the task's image and judged by its tests.

A reply with one fenced block is a command; ``submit`` alone ends the episode, as do the last turn and the task's time
limit. Then all processes of the policy are killed, and the tests run on its files in a new container. Their reward is
the score, and 1 is solved; a reward that is no number from 0 to 1 counts as 0."""

import math
import re
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from envs.foreign.harbor import task_folder
from envs.intercode.fenced_block import first_fenced
from envs.text_env import Opening, TextEnv, Turn, check_texts
from lemur_ray.agents.external_calls import external_call
from lemur_ray.host.json_files import parse_json, toml_beside
from lemur_ray.sandbox.backends import built_image
from lemur_ray.sandbox.backends.whole_machine import CommandResult, ContainerSettings, WholeMachine

SUBMIT = "submit"
SHOWN_CHARS = 10_000
SOLVE = "```bash\nbash /solution/solve.sh\n```"
_OPENING = re.compile(r"(?:bash|sh|shell|console)?[ \t\r]*\n?", re.I)
_SYSTEM = toml_beside(__file__)["system"]


class HarborEnv(TextEnv):
    """Environment of one Harbor task, played by bash commands in a container. Time in the container does not count
    towards the deadline of a step. Options of ``reset``: ``folder`` of the task, on the machine that plays;
    ``database_id`` (hash of its content; a folder with another one is rejected); ``command_s`` (seconds per command);
    ``network`` (as in ``HarborOptions``)."""

    option_names: ClassVar[frozenset[str]] = frozenset({"folder", "database_id", "command_s", "network"})

    def begin(self, options: Mapping[str, Any]) -> Opening:
        check_texts(options, "folder", "database_id")
        path = Path(options["folder"])
        if not path.is_dir():
            raise ValueError(f"{path}: no folder on this machine")
        if built_image.content_hash(path) != options["database_id"]:
            raise ValueError(f"{path}: its content has changed since the evaluation began")
        task = self._task = task_folder.read(path)
        self._command_s, self._left_s = float(options.get("command_s", 120.0)), task.agent_s
        self._network, self._shown = str(options.get("network", "tests")), 0
        with external_call("container"):
            if task.image:
                image = built_image.ensure_pulled(task.image, task.build_s)
            else:
                image = built_image.ensure_built(path / "environment", task.build_s)
            env = {**task.env, **(task.solution_env if self.with_hints else {})}
            resources = self._resources(env, task.agent_user, self._has_network(task.policy_network))
            self._machine = self.opened.enter_context(closing(WholeMachine(image, resources)))
            if self.with_hints and task.has_solution:
                self._machine.upload(path / task_folder.SOLUTION, "/solution")
        limits = {"command_s": self._command_s, "agent_s": task.agent_s, "max_turns": self.max_steps}
        return Opening(f"{task.instruction}\n\nYour first command?", _SYSTEM.format(**limits))

    def respond(self, reply: str) -> Turn:
        fenced = first_fenced(reply, _OPENING)
        action = reply.strip() if fenced is None else fenced.strip()
        if action.lower() == SUBMIT:
            return self._run_tests(SUBMIT, "")
        last = self._turns_left == 1
        if fenced is None or not action:
            output = "No block of commands was found in your reply. Answer with one: ```bash ... ```, or with submit."
            return self._run_tests(None, output, finished=False) if last else Turn(output, None, valid=False)
        output = self._run_command(action)
        if last or self._left_s <= 0:
            return self._run_tests(action, output, finished=not last)
        return Turn(output, action, valid=True)

    def _run_command(self, action: str) -> str:
        limit_s = min(self._left_s, self._task.agent_s if self.with_hints else self._command_s)
        began = time.monotonic()
        with external_call("container"):
            ran = self._machine.run(action, limit_s)
        self._left_s -= min(limit_s, time.monotonic() - began)
        return _render_result(ran)

    def _run_tests(self, action: str | None, output: str, finished: bool = True) -> Turn:
        """Run the tests and end the episode. ``finished``: ended by policy or time limit, not by the turn limit."""
        task = self._task
        network = self._has_network(task.tests_network, True)
        resources = self._resources({**task.env, **task.tests_env}, task.tests_user, network)
        tests = (task.path / task_folder.TESTS, "/tests", "test.sh")
        with external_call("tests"):
            checked = self._machine.judge(*tests, task.tests_s, (TEXT, JSON), resources)
        try:
            reward, note = reward_in(checked.files), ""
        except NoReward as error:
            reward, note = 0.0, f"; {error}"
        if checked.ran.exit_code is None:  # tests that ran out of time may have written half a reward
            reward = 0.0
        text = "\n".join(filter(None, (output, f"Reward of the tests: {reward:g}{note}", _render_result(checked.ran))))
        valid = action is not None
        return Turn(text, action, valid, reward == 1, finished, score=reward)

    def _has_network(self, declared: bool | None, of_tests: bool = False) -> bool:
        """Whether the policy (``of_tests``: the tests) may use a network. ``declared``: the task's setting; None allows
        it to the tests, and to the policy only with option network format."""
        unsaid = of_tests or self._network == "format"
        return self._network != "none" and (unsaid if declared is None else declared)

    def _resources(self, env: Mapping[str, str], user: str, network: bool) -> ContainerSettings:
        task = self._task
        return ContainerSettings(int(task.memory_mb * 2**20), task.cpus, network=network, env=env, user=user)

    def hints(self) -> dict[str, Any]:
        """For scripted policies: the task's solution, then ``submit``, as the expert's; ``ls -la`` and ``submit`` as
        admissible."""
        if not self._task.has_solution:
            return {"admissible": [SUBMIT]}
        self._shown += 1
        return {"expert": SOLVE if self._shown == 1 else SUBMIT, "admissible": ["```bash\nls -la\n```", SUBMIT]}


def _render_result(ran: CommandResult) -> str:
    text = ran.output
    if len(text) > SHOWN_CHARS:
        half = SHOWN_CHARS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
    ended = ran.note or (f"exit code {ran.exit_code}" if ran.exit_code else "")
    return "\n".join(filter(None, (text.rstrip("\n"), f"[{ended}]" if ended else ""))) or "No output"


TEXT, JSON = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"
MOST_BYTES = 65_536


class NoReward(ValueError):
    """Raised if the tests wrote no valid reward; the message says why."""


def reward_in(files: Mapping[str, bytes]) -> float:
    """The reward, 0 to 1, in the tests' files by path: the number in ``reward.txt``, else the one in ``reward.json``.
    An object in reward.json counts by its entry ``reward``, else by the mean of its entries. Raises NoReward if both
    are missing or hold no number."""
    if TEXT in files:
        return _number(files[TEXT])
    if JSON not in files:
        raise NoReward("the tests wrote no reward")
    if len(files[JSON]) > MOST_BYTES:
        raise NoReward(f"reward.json has {len(files[JSON])} bytes")
    try:
        value = parse_json(files[JSON], Path(JSON))
    except ValueError as error:
        raise NoReward(f"reward.json: {error}") from error
    numbers = value if isinstance(value, dict) else {"reward": value}
    rewards = [_bounded(value) for value in ([numbers["reward"]] if "reward" in numbers else list(numbers.values()))]
    if not rewards:
        raise NoReward("reward.json holds no number")
    return sum(rewards) / len(rewards)


def _number(data: bytes) -> float:
    text = data[:MOST_BYTES].decode("utf-8", "replace").strip()
    try:
        return _bounded(float(text))
    except ValueError as error:
        raise NoReward(f"reward.txt holds {text[:80]!r}, expected a number from 0 to 1") from error


def _bounded(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NoReward(f"a reward of {str(value)[:80]!r}, expected a number from 0 to 1")
    if not 0 <= value <= 1:
        raise NoReward(f"a reward of {value:g}, expected a number from 0 to 1")
    return float(value)
