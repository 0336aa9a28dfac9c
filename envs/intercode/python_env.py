"""InterCode-Python: write the function that a sentence describes, in an interpreter that keeps its state.

A reply that begins with ``def`` is also a submission: its function gets the name that the tests call, and the reward is
the share of tests that pass. Everything else is run and its output shown. Tests run in a separate process
(``grading/python_tests``). Protocol: princeton-nlp/intercode c3e46d8, seven turns. With ``compat`` a ``def`` that does
not compile scores 1, as it does upstream."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from envs.intercode.fenced_block import first_fenced
from envs.intercode.shell.bash_env import shown
from envs.intercode.system_prompts import SYSTEM
from envs.text_env import Opening, TextEnv, Turn, check_texts
from lemur_ray.grading.python_tests import TestRun, run_each
from lemur_ray.host.python_source import parsed
from lemur_ray.sandbox.python_repl import PythonSession
from lemur_ray.sandbox.sandbox import Limits, SandboxDestroyed, SandboxSpec
from lemur_ray.sandbox.warm_pool import shared_pool

DIALOGUE_LIMIT = 7
TIME_S = 10.0
_OPENING = re.compile(r"\s*(?:python|py)?[ \t]*\n?", re.I)


class InterCodePythonEnv(TextEnv):
    """InterCode-Python as an environment. Options of ``reset``:

    - ``question``, ``tests`` (assertions), ``name`` (the function they call), ``setup`` (code before the tests),
      ``gold`` (a solution);
    - ``compat`` (see the module); ``backend`` of the sandbox;
    - ``recorded`` ("strict"): replies are the actions of a recording, used without parsing;
    - ``recording``, ``index``, ``database_id`` (not read: identify the data)."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"question", "tests", "name", "setup", "gold", "compat", "recorded", "recording", "index"}
        | {"database_id", "backend"}
    )
    default_max_steps: ClassVar[int] = 7

    def begin(self, options: Mapping[str, Any]) -> Opening:
        check_texts(options, "question", "name")
        if not isinstance(options.get("tests"), Sequence) or not options["tests"]:
            raise ValueError("option tests: expected a list of assertions")
        if options.get("recorded") == "grading":
            raise ValueError("a recording of InterCode-Python holds no verdicts of tests: replay it with strict")
        self._question, self._name, self._gold = options["question"], options["name"], str(options.get("gold", ""))
        self._tests = [f"{options.get('setup', '')}\n{test}" for test in options["tests"]]
        self._compat, self._recorded = bool(options.get("compat")), bool(options.get("recorded"))
        self._best, self._ran = 0.0, ""
        self._session: PythonSession | None = None
        self._backend = str(options.get("backend", "bwrap"))
        system = SYSTEM["python"].format(max_turns=self.max_steps)
        return Opening(f"Task: {self._question}\nYour code?", system, DIALOGUE_LIMIT)

    def respond(self, reply: str) -> Turn:
        code = reply if self._recorded else parse_python(reply)
        if not code.strip() or code.strip().lower() == "skip":
            valid = bool(code.strip())
            text = "Skipped." if valid else "No code was found in your reply."
            return Turn(text, "skip" if valid else None, valid, finished=valid, reward=0.0, score=self._best)
        output, raised = self._run(code)
        if not code.startswith("def "):
            return Turn(f"Output: {shown(output)}", code, valid=not raised, reward=0.0, score=self._best)
        reward = self._submitted(code)
        self._best = max(self._best, reward)
        observation = f"Output: {shown(output)}\nReward: {reward:g}\nThe task was: {self._question}\nTry again."
        return Turn(observation, code, valid=not raised, solved=reward == 1, reward=reward, score=self._best)

    def _run(self, code: str) -> tuple[str, bool]:
        """Run a cell: (output, whether it raised). Definitions of a cell that did not raise serve later submissions."""
        if self._session is None:
            pool = shared_pool(_CELLS, self._backend)
            sandbox = pool.take()
            self.opened.callback(pool.give_back, sandbox)
            self._session = PythonSession(sandbox)
        cell = self._session.cell(code, TIME_S)
        if cell.result.blame == "infra":
            raise SandboxDestroyed(f"the machine gave a cell no time: {cell.result.note}", "infra")
        if not cell.raised and not code.startswith("def "):
            self._ran += f"{code}\n"
        return cell.text, cell.raised

    def _submitted(self, code: str) -> float:
        """Share of tests, 0 to 1, that a submission passes. If it does not compile: 0, with ``compat`` 1."""
        try:
            defined = [node.name for node in parsed(code).body if isinstance(node, ast.FunctionDef)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 1.0 if self._compat else 0.0
        runs = _tested(f"{self._ran}{code}\n{self._name} = {defined[0]}\n", self._tests, self._backend)
        return sum(run.passed for run in runs) / len(runs)

    def hints(self) -> dict[str, Any]:
        """For scripted policies: the reference solution as the expert's reply, and two admissible expressions."""
        return {"expert": f"```python\n{self._gold}\n```", "admissible": ["1 + 1", "help(str)"]}


def parse_python(reply: str) -> str:
    """The code in a reply: the first fenced block, else the whole reply, stripped."""
    fenced = first_fenced(reply, _OPENING)
    return (reply if fenced is None else fenced).strip()


_CELLS = SandboxSpec(limits=Limits(patience_s=30.0), run="intercode-python")
_SOLUTIONS = SandboxSpec(run="intercode-python-solutions")
_TESTS = SandboxSpec(run="intercode-python-tests")


def _tested(solution: str, tests: Sequence[str], backend: str) -> list[TestRun]:
    with shared_pool(_SOLUTIONS, backend).one() as of_solution, shared_pool(_TESTS, backend).one() as of_tests:
        return run_each(solution, tests, of_solution, of_tests)
