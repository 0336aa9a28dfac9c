"""The benchmarks by name: how their tasks are listed, and what an episode of them needs.

A benchmark's module is imported when it is asked for. Knows no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from envs.alfworld.games.triples import Split
from envs.intercode.recording import read_recording, recorded_tasks, recorded_with
from envs.mint.comparison import recorded_as
from envs.mint.recording import SUBSETS
from lemur_ray.agents.recording import RecordingFormat, ReplayMode
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.config import did_you_mean
from lemur_ray.grading.sql import Reward

Prompt = Literal["full", "brief"]


@dataclass(frozen=True)
class Choice:
    """What of an evaluation concerns the tasks. ``limit`` 0: as many as the benchmark has by default."""

    limit: int = 0
    prompt: Prompt = "full"
    reward: Reward = "iou"
    handicap: bool = False
    split: Split = "heldout"
    """Of generated games."""
    data: str = ""
    """Folder of outside data sets, or empty."""
    engine: str = "sqlite"
    compat: bool = False
    recording: Path | None = None
    """Play the tasks of this recording, as they were when it was recorded."""
    mode: ReplayMode = "strict"
    mint: Mapping[str, Any] = field(default_factory=dict)
    """Options of MINT's environment."""
    rootfs: str = ""
    sandbox: str = "bwrap"

    @classmethod
    def of(cls, config: Any, prompt: Prompt, recording: str) -> Choice:
        """From the settings of an evaluation that carry the same names."""
        same = {
            name: getattr(config, name)
            for name in ("limit", "reward", "handicap", "split", "data", "engine", "compat", "rootfs", "sandbox")
        }
        names = ("option_rule", "feedback", "ground_truth", "teacher", "wikipedia", "parser")
        mint = {name: getattr(config, name) for name in names} | {"grader": config.judged_by}
        # Of a CTF and of MINT only submissions are worth anything: nothing need be run to grade what was recorded.
        proposing = "ctf" in config.benchmark or config.benchmark.startswith("mint/")
        mode: ReplayMode = config.replay if config.replay != "auto" else "grading" if proposing else "strict"
        file = Path(recording) if recording else None
        return cls(**same, prompt=prompt, recording=file, mode=mode, mint=mint)

    def narrowed(self, tasks: list[Task]) -> list[Task]:
        """The tasks of the recording, if there is one, and of those the first ``limit``. Raises ValueError."""
        if self.limit < 0:
            raise ValueError(f"{self.limit} tasks asked for: an evaluation needs at least one")
        if self.recording is not None:
            tasks = recorded_tasks(tasks, read_recording(self.recording), self.recording, self.mode)
        return tasks[: self.limit or None]


@dataclass(frozen=True)
class Benchmark:
    """``max_tokens``: of one reply, by prompt."""

    load: Callable[[Choice], list[Task]]
    max_tokens: dict[str, int]
    settings: tuple[str, ...] = ()
    """Fields of the evaluation that change what is measured, besides the prompt."""
    notes: Callable[[Sequence[Episode]], Mapping[str, Any]] = lambda episodes: {}
    """Numbers that belong beside the success rate."""
    recordings: RecordingFormat | None = None
    """Of its recorded runs, where it knows any."""
    stop: tuple[str, ...] = ()
    """Texts at which a reply ends."""
    has_hints: bool = True
    """Whether the expert and random policies can play it."""


def _alfworld(choice: Choice) -> list[Task]:
    from envs.alfworld.tasks import load_tasks

    extra: dict[str, Any] = {"limit": choice.limit} if choice.limit else {}
    return load_tasks(choice.split, prompt=choice.prompt, **extra)


def _sql(choice: Choice) -> list[Task]:
    shared: dict[str, Any] = {"reward": choice.reward, "handicap": choice.handicap, "prompt": choice.prompt}
    if not choice.data:
        from envs.intercode.sql.sample_tasks import load_sql_tasks

        if choice.engine != "sqlite" or choice.recording is not None:
            raise ValueError("a recording, or an engine besides sqlite, needs InterCode's data: say where, --data DIR")
        return load_sql_tasks(choice.limit or None, **shared)
    from envs.intercode.sql.spider import load_spider_tasks

    server = ""
    if choice.engine != "sqlite":
        from envs.intercode.sql.mysql_server import reader_url

        server = reader_url(choice.engine, Path(choice.data))
    compat = choice.compat or choice.recording is not None
    return choice.narrowed(load_spider_tasks(Path(choice.data), server=server, compat=compat, **shared))


def _sandboxed(load: Callable[[Choice], list[Task]], choice: Choice) -> list[Task]:
    """Tasks whose environments are told which backend their sandboxes have."""
    return [replace(task, options={**task.options, "backend": choice.sandbox}) for task in load(choice)]


def _bash(choice: Choice) -> list[Task]:
    from envs.intercode.shell.bash_tasks import load_bash_tasks

    if choice.rootfs and not (Path(choice.rootfs) / "usr").is_dir():
        raise ValueError(f"--rootfs {choice.rootfs}: no folder with a usr in it; expected a root file system")
    return choice.narrowed(load_bash_tasks(_outside(choice), compat=choice.compat, rootfs=choice.rootfs))


def _ctf(choice: Choice) -> list[Task]:
    from envs.intercode.shell.ctf_tasks import load_ctf_tasks

    # What was recorded was graded with the golds as published; and nothing need be run to grade submissions.
    recorded = choice.recording is not None
    files = not (recorded and choice.mode == "grading")
    return choice.narrowed(load_ctf_tasks(_outside(choice), compat=choice.compat or recorded, files=files))


def _python(choice: Choice) -> list[Task]:
    from envs.intercode.python_tasks import load_python_tasks

    # What was recorded was graded with upstream's faults.
    compat = choice.compat or choice.recording is not None
    return choice.narrowed(load_python_tasks(_outside(choice), compat=compat))


def _outside(choice: Choice) -> Path:
    if not choice.data:
        raise ValueError("this benchmark needs InterCode's data: say where with --data DIR")
    return Path(choice.data)


def _sql_notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    from envs.intercode.sql.spider import spider_notes

    return spider_notes(episodes)


def _mint(subset: str, choice: Choice) -> list[Task]:
    from envs.mint.sources import check_sources
    from envs.mint.tasks import load_mint_tasks, recorded_tasks, replay_options

    if not choice.data:
        raise ValueError("MINT's tasks are outside data: say where they are, --data DIR or LEMUR_DATA")
    if choice.limit < 0:
        raise ValueError(f"{choice.limit} tasks asked for: an evaluation needs at least one")
    options, recording = dict(choice.mint), None
    if choice.recording is not None:
        recording = recorded_as(subset).read(choice.recording)
        options |= replay_options(choice.recording, recording, strict=choice.mode == "strict")
    check_sources(subset, options)
    tasks = load_mint_tasks(subset, Path(choice.data), options=options)
    if recording is not None:
        tasks = recorded_tasks(tasks, recording, choice.recording)
    return tasks[: choice.limit or None]


def _mint_notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    from envs.mint.notes import mint_notes

    return mint_notes(episodes)


_MINT_SETTINGS = (
    *("judged_by", "option_rule", "feedback", "teacher", "ground_truth", "wikipedia", "parser", "replay", "sandbox"),
)
_MINT_STOP = ("\nObservation:", "\nExpert feedback:", "\nTask:", "\n---")

BENCHMARKS: dict[str, Benchmark] = {
    "alfworld/text": Benchmark(_alfworld, {"full": 256, "brief": 32}),
    "intercode/bash": Benchmark(
        partial(_sandboxed, _bash),
        {"full": 512, "brief": 512},
        settings=("compat", "replay", "sandbox", "rootfs"),
        recordings=recorded_with(reward_tolerance=0.011),
    ),
    "intercode/ctf": Benchmark(
        partial(_sandboxed, _ctf),
        {"full": 512, "brief": 512},
        settings=("compat", "replay", "sandbox"),
        recordings=recorded_with(),
    ),
    "intercode/python": Benchmark(
        partial(_sandboxed, _python),
        {"full": 512, "brief": 512},
        settings=("compat", "replay", "sandbox"),
        recordings=recorded_with(),
    ),
    "intercode/sql": Benchmark(
        _sql,
        {"full": 512, "brief": 96},
        settings=("reward", "handicap", "engine_kind", "compat", "replay"),
        notes=_sql_notes,
        recordings=recorded_with(),
    ),
    **{
        f"mint/{subset}": Benchmark(
            partial(_sandboxed, partial(_mint, subset)),
            {"full": 512, "brief": 512},
            settings=_MINT_SETTINGS,
            notes=_mint_notes,
            stop=_MINT_STOP,
            has_hints=False,
            recordings=recorded_as(subset),
        )
        for subset in SUBSETS
    },
}


def tasks_of(config: Any, prompt: Prompt) -> list[Task]:
    """The tasks of an evaluation from its settings. Raises ValueError, or FileNotFoundError where its data is gone."""
    return get_benchmark(config.benchmark).load(Choice.of(config, prompt, ""))


def get_benchmark(name: str) -> Benchmark:
    """Raises ValueError that lists the known ones."""
    if name not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {name!r}{did_you_mean(name, sorted(BENCHMARKS))}")
    return BENCHMARKS[name]
