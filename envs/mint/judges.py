"""Judges whether a task is solved: by grading answers, or by the game that the model's code plays.

``mint-2023`` and ``strict`` are both recorded, so that every episode has both verdicts."""

from functools import cache, partial
from pathlib import Path
from typing import Any

from envs.alfworld.play import Play
from envs.mint.tasks import household_games
from envs.mint.tools import Tool
from lemur_ray.grading.mint import Grader, Verdicts, grade
from lemur_ray.grading.python_tests import TestRun, run_tests
from lemur_ray.grading.theorem import OptionRule
from lemur_ray.sandbox.python_repl import own_packages
from lemur_ray.sandbox.sandbox import SandboxSpec
from lemur_ray.sandbox.warm_pool import WarmPool, shared_pool

COMMAND_LIMIT = 50
TESTS = SandboxSpec(run="mint-tests")
"""Sandbox of tests. Never runs code of a model."""
_ARRIVAL = "You arrive at loc "


class AnswerJudge:
    """Judge that grades proposed answers against ``reference``. What a grader has accepted once stays solved.
    ``subset``: MINT's data set; other arguments as for ``grading.mint.grade``; ``backend``: sandbox of programs. Raises
    ValueError without a reference."""

    def __init__(
        self,
        subset: str,
        prompt: str,
        reference: Any,
        answer_type: str,
        option_rule: OptionRule,
        backend: str = "bwrap",
    ) -> None:
        if reference is None:
            raise ValueError(f"option reference: nothing to grade answers of {subset} by")
        self._grade = partial(
            grade,
            subset,
            reference=reference,
            prompt=prompt,
            answer_type=answer_type,
            option_rule=option_rule,
            run_tests=partial(_in_fresh_sandboxes, backend),
        )
        self.verdicts: list[Verdicts] = []

    def propose(self, answer: str) -> None:
        """Grade an answer that the model proposes; ``solved`` includes it from then on."""
        self.verdicts.append(self._grade(answer=answer))

    def solved(self, grader: Grader) -> bool:
        return any(verdicts.by(grader) for verdicts in self.verdicts)

    def over(self, grader: Grader) -> bool:
        """False: no number of answers ends an episode."""
        return False


def _in_fresh_sandboxes(backend: str, solution: str, tests: str, setup: str = "") -> TestRun:
    with _solutions(backend).one() as of_solution, shared_pool(TESTS, backend).one() as of_tests:
        return run_tests(solution, tests, of_solution, of_tests, setup=setup)


@cache
def _solutions(backend: str) -> WarmPool:
    """Pool of sandboxes that run solutions, with this interpreter's packages, as the Python tool has them."""
    mounts = own_packages()
    environment = {"PYTHONPATH": ":".join(mounts), "MPLBACKEND": "Agg"}
    return shared_pool(SandboxSpec(mounts=mounts, env=environment, run="mint-solutions"), backend)


class HouseholdJudge:
    """Plays and judges the ALFWorld game ``game`` of ``archive``; ValueError if it is missing. ``won``: one of the
    first 50 commands reached the goal. ``done``: any did, or 50 were used up, which mint-2023 takes as success."""

    def __init__(self, archive: Path, game: str) -> None:
        games = household_games(archive)
        if game not in games:
            raise ValueError(f"{archive} has no game {game!r}")
        self._house = Play(games[game])
        self.commands = 0
        self._won_at: int | None = None

    def command(self, tool: Tool, arguments: list[str]) -> str:
        """The game's answer to a tool call, without "You arrive at loc N.". Raises ValueError for wrong arguments."""
        if tool.command is None or len(arguments) != len(tool.parameters):
            raise ValueError(f"{tool.name}: {len(arguments)} arguments, expected {tool.signature}")
        answer = self._house.step(tool.command(*arguments))
        self.commands += 1
        if self._house.won and self._won_at is None:
            self._won_at = self.commands
        return answer.partition(". ")[2] if answer.startswith(_ARRIVAL) else answer

    @property
    def won(self) -> bool:
        return self._won_at is not None and self._won_at <= COMMAND_LIMIT

    @property
    def done(self) -> bool:
        return self._won_at is not None or self.commands >= COMMAND_LIMIT

    def propose(self, answer: str) -> None:
        """Do nothing: an answer in words changes nothing in a household."""

    def solved(self, grader: Grader) -> bool:
        return self.done if grader == "mint-2023" else self.won

    def over(self, grader: Grader) -> bool:
        """Whether the episode ends unsolved by this grader, since the game's commands are used up."""
        return self.commands >= COMMAND_LIMIT and not self.solved(grader)


Judge = AnswerJudge | HouseholdJudge
"""Judges an episode by each of the two graders ("mint-2023", "strict")."""
