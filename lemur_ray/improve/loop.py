"""A whole improvement run over a backend: evaluate, then rounds of play, training and swap, then evaluate again.

Order of commits in a round: episodes (synced as they end), record ``played``, updates, checkpoint, record ``trained``,
swap. Nothing is served that a kill could lose, so after a kill at any moment the same call goes on from the files alone
and writes the same ones. Knows nothing of Ray: a ``Backend`` trains, serves and plays."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.trajectory import Episode
from lemur_ray.host.exit_codes import CausedError, ExitCode
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.improve.groups import GroupBatch, group_batch, round_batches
from lemur_ray.improve.learner import Committed
from lemur_ray.improve.outcome import (
    MOST_MISSING,
    RESULT,
    alarms,
    best_round,
    collapse,
    comparison,
    last_evaluation,
    rate,
    result_line,
    round_line,
    round_numbers,
)
from lemur_ray.improve.page import RunPage
from lemur_ray.improve.round_policy import RoundPolicySpec
from lemur_ray.improve.rounds import ROUNDS, Action, Event, Rounds, due
from lemur_ray.improve.task_sets import TaskSets
from lemur_ray.improve.traces import TracedRound
from lemur_ray.improve.training_rows import Rows, batch_order, digest, examples_of, rows_of
from lemur_ray.rollout.evaluation import EvaluationPlan, run_evaluation
from lemur_ray.rollout.evaluation_folder import LEDGER
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.threads import Pool
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.run.folder import write_json
from lemur_ray.weights.checkpoints import CHECKPOINTS, commit_at

Wrap = Callable[[AbstractContextManager[Pool]], AbstractContextManager[Pool]]


class RoundFailed(CausedError):
    """Raised if a round cannot be trained. The message says why and, if something helps, what to do: run the same
    command again, bring files back, or choose another ``--out``."""


class EpisodesMissing(RoundFailed):
    """Raised if too many episodes were not scored because of the machine; the same command plays them again."""

    exit_code = ExitCode.TRY_AGAIN


class Served(NamedTuple):
    """Weights that are served: their version, and how to query them."""

    version: str
    policy: Callable[[], Policy]
    """Factory of the model's policy for any process that plays."""


class Backend(Protocol):
    """Interface to the learner, the server and the pool of a run: in this process, or on a Ray cluster."""

    def open(self) -> Committed:
        """Start the learner: restore the newest commit, or commit the initial weights. Called once, first."""

    def train(self, number: int, rows: Rows, order: np.ndarray, best: int) -> Committed:
        """Make the updates of round ``number`` and commit the weights; the checkpoint of step ``best`` is kept. rows:
        training rows; order: (updates, width) indices of rows, -1 for an empty row. Errors as for
        ``learner.Learner.train``."""

    def serve(self, commit: Committed) -> Served:
        """Serve a commit in every replica, starting the server if there is none."""

    def pool(self, plan: EvaluationPlan, policy: Callable[[], Policy]) -> AbstractContextManager[Pool]:
        """Context manager: a pool that plays the episodes of ``plan``. policy: factory of their policy."""


@dataclass
class ImproveRun:
    """One improvement run: its configuration, folder ``out``, tasks and backend. seq_len: tokens of a training row.
    say: reports a line."""

    config: ImproveConfig
    out: Path
    tokenizer: Tokenizer
    tasks: TaskSets
    backend: Backend
    seq_len: int
    say: Callable[[str], None] = print

    def run(self) -> dict[str, Any]:
        """Do everything that is not done yet. Returns the content of ``result.json``. Raises RoundFailed, RoundsError,
        and the errors of the backend."""
        config, rounds = self.config, Rounds(self.out / ROUNDS)
        if rounds.repaired:
            self.say(rounds.repaired)
        commit = self.backend.open()
        self._served = self.backend.serve(commit)
        while (step := due(rounds, config.rounds, commit.step // config.updates)).action is not Action.FINISH:
            number = step.number
            if step.action is Action.PLAY:
                if number == 1 or (config.eval_every and (number - 1) % config.eval_every == 0):
                    self._evaluate(number - 1)
                self._play(rounds, number)
                continue
            if step.action is Action.TRAIN:
                rows, _ = self._batch(number)
                self._check_rows(rounds, number, rows)
                assert rows is not None
                shape = config.updates, config.recipe.train.rows_per_step
                order_of = round_batches if config.reinforces else batch_order
                order = order_of(len(rows["tokens"]), *shape, (config.recipe.train.seed, number))
                best = (self._best(self._evaluations(number - 1)) or 0) * config.updates
                commit = self.backend.train(number, rows, order, best)
            trained = rounds.append(number, Event.TRAINED, version=commit.step, **commit.numbers)
            self._served = self.backend.serve(commit)
            played = rounds.get(number, Event.PLAYED)
            assert played is not None
            self.say(round_line(number, config.rounds, played, trained))
            self._write_page(rounds, number)
        return self._finish(rounds, step.number, commit)

    def _policy(self, number: int) -> str:
        """Name, in episodes' keys, of the weights after round ``number``."""
        return f"improve:{self.out.name}@{number * self.config.updates}"

    def _play(self, rounds: Rounds, number: int) -> None:
        """Play round ``number`` and record it, with the digest of its training data."""
        config, begun, plan = self.config, time.monotonic(), self._round_plan(number)
        ids = [task.id for task in plan.tasks]
        rounds.append(number, Event.PLANNED, tasks=ids, version=(number - 1) * config.updates)
        numbers = round_numbers(self._round_episodes(plan, number), config.teaches)
        if numbers["missing"] == numbers["episodes"]:
            raise EpisodesMissing(
                f"round {number}: none of {numbers['episodes']} episodes was scored: see {plan.out}, then run the same "
                "command again, which plays them"
            )
        rows, of_groups = self._batch(number)
        numbers, play_s = {**numbers, **of_groups}, round(time.monotonic() - begun, 2)
        if rows is None and numbers["missing"]:
            raise EpisodesMissing(
                f"round {number}: {numbers['missing']} of {numbers['episodes']} episodes are missing and the others "
                f"hold nothing to train: see {plan.out}, then run the same command again, which plays them"
            )
        first = rounds.get(1, Event.PLAYED) or numbers
        collapsed = collapse(numbers, first) if config.reinforces else ""
        for message in alarms(numbers, first) if config.reinforces else ():
            self.say(f"round {number}: {message}")
        if rows is None or collapsed:
            reason = f"round {number}: {collapsed or self._reason(numbers)} the run ends with the weights of round "
            rounds.append(number, Event.WITHHELD, reason=f"{reason}{number - 1}", **numbers, play_s=play_s)
            return
        rounds.append(number, Event.PLAYED, rows=digest(rows), num_rows=len(rows["tokens"]), **numbers, play_s=play_s)

    def _reason(self, numbers: dict[str, Any]) -> str:
        """Why a round has nothing to train."""
        if self.config.reinforces == "state" and not numbers["states"]:
            return f"{self.config.benchmark} reports no states, which --algorithm state compares, so"
        if self.config.reinforces:
            return f"none of {numbers['groups']} groups has episodes of different reward to learn from, so"
        what = "held a reply that may be trained" if self.config.teaches or numbers["won"] else "was solved"
        episodes = numbers["episodes"] - numbers["missing"]
        return f"none of {episodes} episodes {what}, so there is nothing to learn from and"

    def _evaluate(self, number: int) -> Episodes:
        """Play the held-out tasks with the weights after round ``number``, alone; those that are served now unless all
        episodes are there. Raises EpisodesMissing, before anything else is played."""
        plan = self.tasks.evaluation_plan(self._policy(number), self.out / "heldout" / str(number))
        episodes = self._episodes(plan, RoundPolicySpec(self._served.policy, self._served.version))
        if missing := self._missing(episodes, number):
            raise EpisodesMissing(f"{missing}: see {plan.out}, then run the same command again, which plays them")
        return episodes

    def _missing(self, episodes: Sequence[Episode], number: int) -> str:
        """Message if too many of the held-out episodes after round ``number`` have no score, else empty."""
        wanted = len(self.tasks.held_out.tasks)
        missing = wanted - sum(episode.outcome.scored for episode in episodes)
        text = f"{missing} of {wanted} held-out episodes of round {number} are missing"
        return text if missing > MOST_MISSING * wanted else ""

    def _checkpoint(self, number: int) -> str:
        return f"{self.out}/{CHECKPOINTS}/{number * self.config.updates}"

    def _best(self, evaluations: dict[int, Episodes]) -> int | None:
        """``best_round`` among the rounds whose checkpoint is there."""
        return best_round({n: one for n, one in evaluations.items() if commit_at(self._checkpoint(n))})

    def _evaluations(self, number: int) -> dict[int, Episodes]:
        """The held-out episodes by the number of the round before, up to round ``number``, of those evaluated."""
        plans = {
            n: self.tasks.evaluation_plan(self._policy(n), self.out / "heldout" / str(n)) for n in range(number + 1)
        }
        return {n: _stored(plan) for n, plan in plans.items() if (plan.out / LEDGER).is_file()}

    def _round_plan(self, number: int) -> EvaluationPlan:
        name, folder = self._policy(number - 1), self.out / "rounds" / str(number)
        return self.tasks.round_plan(self.config, number, name, folder)

    def _round_episodes(self, plan: EvaluationPlan, number: int) -> Episodes:
        """Play the training episodes of round ``number`` that are not there yet; with reinforcement, all of them again
        if traces are missing."""
        config = self.config
        model = self._served.policy if config.share_of_model else None
        share, seed, traced = config.share_of_model, config.recipe.train.seed, config.reinforces is not None
        policy = RoundPolicySpec(model, self._served.version, share, seed, traced)
        if not traced:
            return self._episodes(plan, policy)
        files = TracedRound(self.out, plan.out, number, self.say)
        for _ in range(2):
            episodes = self._episodes(plan, policy, files.within)
            if (traces := files.load(episodes)) is not None:
                files.keep(episodes, traces)
                return episodes
            files.discard()
        raise RoundFailed(f"round {number}: its episodes have no traces, although they were played again")

    def _episodes(self, plan: EvaluationPlan, policy: RoundPolicySpec, wrap: Wrap = lambda pool: pool) -> Episodes:
        plan.out.mkdir(parents=True, exist_ok=True)
        return run_evaluation(plan, lambda: wrap(self.backend.pool(plan, policy)))

    def _batch(self, number: int) -> GroupBatch:
        """Training rows of a played round, made from its ledger and, with reinforcement, its traces."""
        config, plan = self.config, self._round_plan(number)
        training = [task.id for task in self.tasks.training.tasks]
        if config.reinforces is None:
            examples = examples_of(_stored(plan), "teacher" if config.teaches else "wins", training)
            return GroupBatch(rows_of(examples, self.tokenizer, self.seq_len), {})
        files = TracedRound(self.out, plan.out, number, self.say)
        if (traces := files.load(_stored(plan))) is None:
            self._round_episodes(plan, number)
            traces = files.load(_stored(plan))
        assert traces is not None
        shuffled = (config.recipe.train.seed, number) if config.control else None
        shape = self.tokenizer.filler_id, self.seq_len
        return group_batch(_stored(plan), traces, config.reinforces, training, *shape, shuffled)

    def _check_rows(self, rounds: Rounds, number: int, rows: Rows | None) -> None:
        played = rounds.get(number, Event.PLAYED)
        assert played is not None
        if digest(rows) != played["rows"]:
            raise RoundFailed(
                f"round {number}: its ledger gives training rows {digest(rows) or 'none'}, but {rounds.path} has "
                f"{played['rows']}: {self.out}/rounds/{number} was changed, or its traces were lost and the "
                "episodes came out differently when played again; bring the files back, or choose another --out"
            )

    def _finish(self, rounds: Rounds, number: int, commit: Committed) -> dict[str, Any]:
        """Evaluate the last weights, those after round ``number``, and write the result. Raises EpisodesMissing, and
        RoundFailed if episodes of the start, whose weights are no longer served, were lost."""
        config = self.config
        after = self._evaluate(number)
        evaluations = self._evaluations(number)
        before: Sequence[Episode] = evaluations.get(0, ())
        best = self._best(evaluations)
        assert best is not None  # the last round is evaluated, and its checkpoint there
        if missing := self._missing(before, 0):
            raise RoundFailed(
                f"{missing}, and its weights are no longer served: bring {self.out}/heldout/0 back, or choose another "
                "--out"
            )
        withheld = rounds.get(number + 1, Event.WITHHELD)
        result = {
            "benchmark": config.benchmark, "algorithm": config.algorithm, "control": config.control,
            "rounds": number, "steps": commit.step, "before": rate(before), "after": rate(after),
            **comparison(before, after), "stopped": withheld["reason"] if withheld else "",
            "checkpoint": commit.folder, "out": str(self.out),
            "best": {"round": best, "checkpoint": self._checkpoint(best), **rate(evaluations[best])},
        }  # fmt: skip
        if config.compare_to:
            is_control, episodes = last_evaluation(config.compare_to)
            result["compared_to"] = {
                "run": config.compare_to, "control": is_control, **rate(episodes), **comparison(episodes, after),
            }  # fmt: skip
        if withheld:
            self.say(withheld["reason"])
        page = self._write_page(rounds, number, result, (RESULT, "rounds.jsonl"))
        self.say(result_line(result, page))
        write_json(f"{self.out}/{RESULT}", result)
        return result

    def _write_page(
        self, rounds: Rounds, number: int, result: Mapping[str, Any] = MappingProxyType({}),
        files: Sequence[str] = ("rounds.jsonl",),
    ) -> Path:  # fmt: skip
        """Write the page of the run until now, after round ``number``. result: of a finished run."""
        records = [(n, rounds.get(n, Event.PLAYED), rounds.get(n, Event.TRAINED)) for n in range(1, number + 1)]
        evaluations = self._evaluations(number)
        trained = [(n, played, trained) for n, played, trained in records if played and trained]
        page = RunPage(
            self.config, self.out.name, trained, evaluations, self._best(evaluations),
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", result.get("stopped", ""), files, result.get("compared_to"),
        )  # fmt: skip
        return page.write(self.out)


def _stored(plan: EvaluationPlan) -> Episodes:
    """The episodes of a plan that its ledger has, in the plan's order."""
    with Ledger(plan.out / LEDGER) as ledger:
        return ledger.episodes(spec.key for spec in plan.episodes)
