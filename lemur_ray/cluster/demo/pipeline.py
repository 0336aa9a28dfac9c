"""The jobs of the demo in order: corpus, pretraining, tuning, serving, games and report on one Ray head."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lemur_ray.cluster.demo.display import open_display
from lemur_ray.cluster.demo.head import DemoFailed, Head, private_head
from lemur_ray.cluster.demo.stages import Stage, StageRunner
from lemur_ray.host.durations import duration
from lemur_ray.host.home import lemur_home

TITLES = (
    "Ray head", "corpus", "pretraining", "tuning", "serving", "tuned model", "random player", "expert",
    "untrained model", "SQL by its answers", "report",
)  # fmt: skip
LOG = "demo.log"
"""File under LEMUR_HOME to which the output of all jobs is appended."""
ADVICE = (
    "the same command goes on where it left off. A folder of another program version is left alone: start afresh with "
    "LEMUR_HOME=NEW_FOLDER"
)
StartHead = Callable[[int], contextlib.AbstractContextManager[Head]]


@dataclass(frozen=True)
class DemoConfig:
    """Corpus to report on a Ray head of our own, under $LEMUR_HOME; the same command again resumes."""

    seed: int = 0
    """Seed of the weights and of the order of rows, in pretraining and tuning. Runs of seeds other than 0
    have folders of their own: runs/nano-seed1, runs/nano-chat-seed1."""
    games: int = 120
    """Held-out ALFWorld games played by the tuned model and the scripted baselines."""
    untrained_games: int = 24
    """Held-out games played by the untrained model, which uses all 50 turns of each."""
    num_cpus: int = 0
    """CPUs the head offers. 0: all of the machine."""


def run(config: DemoConfig, *, start_head: StartHead = private_head, stream: TextIO | None = None) -> Path:
    """Run every job once under ``$LEMUR_HOME`` and return the path of the report. stream: for the display, default
    stdout. Raises DemoFailed with the failed stage, the end of its output, advice, and the path of the log."""
    began, path, stream = time.monotonic(), lemur_home() / LOG, stream or sys.stdout
    stages = [Stage(title) for title in TITLES]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("a", buffering=1)
    except OSError as error:
        raise DemoFailed(f"{path} cannot be written ({error}): choose another folder with LEMUR_HOME=...") from error
    with log:
        try:
            with open_display(stages, f"demo: all that the jobs print goes to {path}", stream) as shown:
                _run_stages(StageRunner(stages, shown, log), config, start_head)
        except DemoFailed as error:
            raise DemoFailed(f"{error}\nall of it: {path}\n{ADVICE}") from None
    report = lemur_home() / "report" / "index.html"
    print(f"{duration(time.monotonic() - began)} in all. Open {report}", file=stream, flush=True)
    return report


def _run_stages(runner: StageRunner, config: DemoConfig, start_head: StartHead) -> None:
    seeds = ("--train.seed", str(config.seed), "--data.seed", str(config.seed))
    suffix = f"-seed{config.seed}" if config.seed else ""
    base, chat = f"runs/nano{suffix}", f"nano-chat{suffix}"
    with contextlib.ExitStack() as running:
        head = runner.run("Ray head", lambda on_line: running.enter_context(start_head(config.num_cpus)))

        def job(title: str, *command: str) -> None:
            runner.run(title, lambda on_line: head.submit(*command, on_line=on_line))

        job("corpus", "build_corpus")
        job("pretraining", "pretrain", "nano", *seeds, "--out", base)
        tuned = ("--init-from", base, "--slips", "0.1", "--out", f"runs/{chat}")
        job("tuning", "instruct", "nano-chat", *seeds, *tuned)
        games = ("agent_eval", "--benchmark", "alfworld/text", "--prompt", "brief")
        limit = ("--limit", str(config.games))
        with contextlib.ExitStack() as serving:
            url = runner.run(
                "serving", lambda on_line: serving.enter_context(head.served("--model", chat, on_line=on_line))
            )
            job("tuned model", *games, "--policy", f"openai:{url}", "--policy-model", chat, *limit)
        for title, baseline in (("random player", "random"), ("expert", "expert")):
            # Without a model, threads of one process finish sooner than Ray actors start.
            job(title, *games, "--policy", baseline, *limit, "--actors", "0")
        untrained = ("--policy", f"checkpoint:random:nano@{chat}", "--limit", str(config.untrained_games))
        job("untrained model", *games, *untrained)
        # nano cannot write SQL: this run shows that the grader accepts every reference answer.
        job("SQL by its answers", "agent_eval", "--benchmark", "intercode/sql", "--data", "", "--policy", "expert",
            "--actors", "0")  # fmt: skip
        job("report", "report")
