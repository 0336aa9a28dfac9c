"""Options of an improvement run, their checks, and the identity that a run folder is resumed by."""

import math
import os
from dataclasses import dataclass, field
from typing import Any, Literal

from lemur_ray.config import Recipe, identity, topics
from lemur_ray.host.exit_codes import CausedError, ExitCode
from lemur_ray.recipes.nano_improve import RECIPE
from lemur_ray.train.job_arguments import Flat

Reinforcement = Literal["rloo", "grpo", "gigpo", "state"]
Algorithm = Literal["teacher", "wins", "rloo", "grpo", "gigpo", "state"]
GROUP = 8
"""Episodes of a task that reinforcement compares, by default."""


class BadInput(CausedError):
    """Raised if the command line names something that a run cannot use; the message says what and why, in one line."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class ImproveConfig:
    """Improve a chat model by play: rounds of episodes, selection and training. The same command again resumes."""

    HELP = topics("improve")

    init_from: str = "nano-chat"
    """Run or its name, or checkpoint, whose parameters start the run."""
    out: str = ""
    """Run folder, absolute or relative to $LEMUR_HOME. Empty: runs/<name of the run it starts from>-2."""
    benchmark: str = "alfworld/text"
    """family/variant, for example intercode/sql, or module:object."""
    algorithm: Algorithm = "wins"
    """teacher: the benchmark's expert replies in part of the turns, and its replies are trained. wins: the model plays
    alone, and episodes that it won are trained. rloo, grpo, gigpo, state: policy gradients, by rewards compared within
    the episodes of each task; gigpo and state also compare visits to one state of the game."""
    control: bool = False
    """The same rounds and number of updates on the same tasks, but the expert plays alone: nothing comes from play.
    With policy gradients: the rewards of each task are dealt out at random among its episodes."""
    rounds: int = 4
    """Number of rounds of play and training; divides --train.steps."""
    games: int = 120
    """Training tasks that each round plays."""
    samples: int = 0
    """Episodes of each training task in a round. 0: 1, or 8 with policy gradients."""
    keep: float = 0.5
    """teacher: share of the turns that the model plays itself."""
    temperature: float = 1.0
    """Sampling temperature of training episodes, 1 with policy gradients; evaluations are greedy."""
    eval_games: int = 120
    """Held-out tasks of an evaluation."""
    eval_every: int = 0
    """Rounds between two evaluations on held-out tasks. 0: only before the first round and after the last one."""
    compare_to: str = ""
    """Folder of a finished run on the same held-out tasks, for example one with --control (or, for the control, of the
    run): result and page also show the gain over it."""
    first_task: int = 0
    """Training tasks that are left out at the beginning, for example those that the model was tuned on."""
    train_tasks: str = ""
    """Training tasks, as --tasks of jobs/agent_eval.py. Empty: those of the benchmark's split train, or, without one,
    half of its groups of dependent tasks (databases)."""
    eval_tasks: str = ""
    """Held-out tasks; given together with --train-tasks."""
    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA, else LEMUR_HOME/data)."""
    in_flight: int = 32
    """Maximum number of episodes played at the same time."""
    actors: int = 2
    """Maximum number of Ray actors that play them."""
    replicas: int = 1
    """Replicas of the model that answer them; all take the weights of a round, or none."""
    float64: bool = False
    """Server and learner compute log-probabilities in float64, on CPUs: they agree to about 1e-6, float32 to 1e-4, and
    play takes longer. Updates stay in --train.compute-dtype."""
    recipe: Flat = RECIPE

    def check(self) -> None:
        """Raise BadInput, with the flag, its value and the expected one, for an invalid value."""
        for name in ("rounds", "games", "eval_games", "in_flight", "actors", "replicas"):
            if (count := getattr(self, name)) < 1:
                raise BadInput(f"--{name.replace('_', '-')} {count}: expected 1 or more")
        for name in ("eval_every", "first_task", "samples"):
            if (count := getattr(self, name)) < 0:
                raise BadInput(f"--{name.replace('_', '-')} {count}: expected 0 or more")
        if not 0 <= self.keep < 1:
            raise BadInput(f"--keep {self.keep:g}: expected a share from 0 to below 1")
        if not 0 < self.temperature < math.inf:
            raise BadInput(f"--temperature {self.temperature:g}: expected a finite number above 0")
        if self.reinforces and self.temperature != 1:
            raise BadInput(
                f"--temperature {self.temperature:g}: expected 1 with --algorithm {self.algorithm}, which needs the "
                "probabilities that replies were drawn with"
            )
        if self.reinforces and self.samples == 1:
            raise BadInput("--samples 1: a group of one episode has nothing to be compared with, expected 2 or more")
        if self.recipe.train.steps % self.rounds:
            raise BadInput(
                f"--train.steps {self.recipe.train.steps}: expected a multiple of --rounds {self.rounds}, so that all "
                "rounds have the same number of updates"
            )
        if self.recipe.lora.rank:
            raise BadInput(f"--lora.rank {self.recipe.lora.rank}: adapters are not trained here, expected 0")
        if (self.recipe.mesh.num_workers, self.recipe.mesh.use_tpu) != (1, False):
            raise BadInput("--mesh.num-workers, --mesh.use-tpu: the learner is one process, on CPUs or one GPU")
        if self.float64 and self.recipe.mesh.use_gpu:
            raise BadInput("--float64 with --mesh.use-gpu: expected CPUs")
        if bool(self.train_tasks) != bool(self.eval_tasks):
            raise BadInput("--train-tasks and --eval-tasks: expected both or neither")

    @property
    def updates(self) -> int:
        """Optimizer steps of a round."""
        return self.recipe.train.steps // self.rounds

    @property
    def reinforces(self) -> Reinforcement | None:
        """The algorithm if it is one of policy gradients, which need traces and groups."""
        match self.algorithm:
            case "teacher" | "wins":
                return None
            case reinforcement:
                return reinforcement

    @property
    def epochs(self) -> int:
        """Episodes of each training task in a round."""
        return self.samples or (GROUP if self.reinforces else 1)

    @property
    def teaches(self) -> bool:
        """Whether the benchmark's expert takes part in training episodes."""
        return not self.reinforces and (self.control or self.algorithm == "teacher")

    @property
    def share_of_model(self) -> float:
        """Share (0 to 1) of a training episode's turns that the model plays; the expert plays the others."""
        return (0.0 if self.control else self.keep) if self.teaches else 1.0

    def described(self, recipe: Recipe, init_from: str) -> dict[str, Any]:
        """JSON values that identify a run; a run folder with other values belongs to another run. recipe: with the
        shape of the model. init_from: identity of the weights that start the run
        (``weights.checkpoints.weights_of``)."""
        names = ("benchmark", "algorithm", "control", "rounds", "games", "samples", "keep", "temperature", "eval_games",
                 "eval_every", "first_task", "train_tasks", "eval_tasks")  # fmt: skip
        own = {name: getattr(self, name) for name in names} | {"samples": self.epochs}
        own |= {"float64": True} if self.float64 else {}
        return {"recipe": identity(recipe), "init_from": init_from, "improve": own}
