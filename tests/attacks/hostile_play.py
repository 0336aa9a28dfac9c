"""Hostile acts and benign neighbours played in one pool by the production runner; as a program, with its memory told.

``python -m tests.attacks.hostile_play ORDER`` (JSON: see ``Play``) prints one JSON line: how every episode ended, and
the most memory that this process ever held.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.alfworld.env import ALFWorldTextEnv
from envs.alfworld.expert import Expert
from envs.alfworld.play import Play as Game
from envs.intercode.sql.sample_database import build_sample
from envs.mint.tasks import household_games
from envs.mint.tools import HOUSEHOLD
from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.agents.replay import TurnCounter
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.discovery import find
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import Pool, ThreadPool
from tests.attacks import hostile_questions as questions
from tests.attacks.acts import ACTS
from tests.envs.mint.picky_teacher import picky_teacher

SANDBOXED = ("bash", "ctf", "python", "reasoning", "theorem", "code", "household")
KINDS = (*SANDBOXED, "taught", "sql", "mysql", "alfworld", *questions.QUESTIONS)
_MINT = {"id": "0", "prompt": "How many?", "example": "Task:\nx"}
_SHELL = {"question": "Do it.", "gold": "mkdir -p /data0 && echo kept > /data0/a && cat /data0/a", "trees": {}}
_OPTIONS: dict[str, dict[str, Any]] = {
    "bash": _SHELL,
    "ctf": {"question": "Find it.", "gold": "flag{x}"},
    "python": {"question": "One more.", "name": "f", "tests": ["assert f(1) == 2", "assert f(2) == 3"]},
    "reasoning": {**_MINT, "subset": "gsm8k", "reference": "77"},
    "taught": {**_MINT, "subset": "gsm8k", "reference": "77", "feedback": "textual", "tools": "skip"},
    "theorem": {**_MINT, "subset": "theoremqa", "reference": 7777, "answer_type": "integer"},
    "code": {**_MINT, "subset": "mbpp", "reference": "assert f(1) == 2"},
    "household": {**_MINT, "subset": "alfworld", "reference": ""},
    "alfworld": {"split": "heldout", "index": 3},
    "sql": {"question": "How many?", "gold": "SELECT 4711, 'a'"},
    "mysql": {"question": "How many?", "gold": "SELECT 4711, 'a'"},
}
_ENVIRONMENT = {
    **dict.fromkeys(("reasoning", "taught", "theorem", "code", "household"), "envs:lemur/MINT-v0"),
    **dict.fromkeys(("sql", "mysql"), "envs:lemur/InterCodeSQL-v0"),
    "bash": "envs:lemur/InterCodeBash-v0",
    "ctf": "envs:lemur/InterCodeCTF-v0",
    "python": "envs:lemur/InterCodePython-v0",
    "alfworld": "envs:lemur/ALFWorldText-v0",
    **questions.ENVIRONMENT,
}
BENCHMARK = {
    **{kind: f"intercode/{kind}" for kind in ("bash", "ctf", "python", "sql")},
    "mysql": "intercode/sql",
    "reasoning": "mint/gsm8k",
    "taught": "mint/gsm8k",
    "theorem": "mint/theoremqa",
    "code": "mint/mbpp",
    "household": "mint/alfworld",
    "alfworld": "alfworld/text",
    **questions.BENCHMARK,
}
_SOLVES: dict[str, tuple[str, ...]] = {
    "bash": (f"```bash\n{_SHELL['gold']}\n```",),
    "ctf": ("ls -la", "echo flag", "submit flag{x}"),
    "python": ("x = 1\nx", "def f(x): return x + 1"),
    "reasoning": ("<execute>print(7 * 11)</execute>", "<solution>77</solution>"),
    "taught": ("<execute>print(7 * 11)</execute>", "<solution>77</solution>"),
    "theorem": ("<execute>import math\nmath.pi</execute>", "<solution>7777</solution>"),
    "code": ("<execute>1 + 1</execute>", "<solution>def f(x): return x + 1</solution>"),
    "sql": ("SELECT 1", "```sql\nSELECT 4711, 'a'\n```"),
    "mysql": ("SELECT 1", "```sql\nSELECT 4711, 'a'\n```"),
    **questions.SOLVES,
}


@dataclass(frozen=True)
class Play:
    """What is played: acts by number, and ``neighbours`` benign episodes of each kind among them."""

    acts: tuple[int, ...]
    backend: str = "bwrap"
    in_flight: int = 32
    neighbours: int = 1
    games: str = ""
    """Archive of ALFWorld's real games; without it no household is played."""
    server: str = ""
    """URL of a MySQL; without it only SQLite is asked."""
    copies: int = 1
    """Episodes of each act, of the first of its kinds alone where there are several."""
    name_of_database: str = "lemur"


class Says:
    """The replies of each episode, found by its task."""

    wants_hints = False
    name = "hostile"

    def __init__(self, replies: dict[str, tuple[str, ...]]) -> None:
        self._replies = replies
        self._turns = TurnCounter()

    def reply(self, request: ChatRequest) -> ChatReply:
        said = self._replies[request.episode.split("|")[1]]
        reply = said[min(self._turns.of(request), len(said) - 1)]
        return ChatReply(questions.with_numbers(reply, request.messages[-1].content))


def tasks_of(play: Play, folder: Path, site: str = "", teacher: str = "") -> dict[str, tuple[Task, tuple[str, ...]]]:
    """Task and replies by the task's id: acts, and benign ones (``benign: ...``) spread evenly among them.

    What a kind needs and is not there is no task (``hostile_questions.lacks``)."""
    there = {"mysql": play.server, "household": play.games, "web": site, "taught": teacher}
    known = [kind for kind in KINDS if there.get(kind, "yes") and not questions.lacks(kind, play.backend)]
    made = {kind: questions.options_of(kind, folder, site) for kind in questions.QUESTIONS}
    shared: dict[str, dict[str, Any]] = {kind: dict(_OPTIONS.get(kind) or made[kind]) for kind in known}
    for kind in (*SANDBOXED, *questions.QUESTIONS):
        if kind in shared and kind != "web":
            shared[kind]["backend"] = play.backend
    if "taught" in shared:
        shared["taught"]["teacher"] = f"openai:{teacher}#t"
    shared["sql"]["database"] = str(build_sample(folder / "sample.sqlite"))
    solves = {**_SOLVES, "alfworld": tuple(_commands_that_win())}
    if "mysql" in shared:
        shared["mysql"] |= {"database": play.name_of_database, "server": play.server}
    if "household" in shared:
        game, solves["household"] = _household(Path(play.games))
        shared["household"] |= {"games": play.games, "id": game}
    hostile = [ACTS[number] for number in play.acts]
    found: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
        (f"{kind}: {act.name}{f' once more ({copy})' if copy else ''}", kind, dict(act.options), act.replies)
        for act in hostile
        for copy in range(play.copies)
        for kind in (act.kinds if play.copies == 1 else act.kinds[:1])
        if kind in shared
    ]
    kinds = {kind for _, kind, _, _ in found}
    benign: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
        (f"benign {number}: {kind}", kind, {}, solves[kind])
        for number in range(play.neighbours)
        for kind in known
        if kind in kinds
    ]
    every = max(1, len(found) // max(1, len(benign)))
    for place, one in enumerate(benign):
        found.insert(min(len(found), place * (every + 1)), one)
    return {
        name: (Task(kind, name, _ENVIRONMENT[kind], kind, {**shared[kind], **own}, 12), replies)
        for name, kind, own, replies in found
    }


def play(what: Play, ledger: Path, make_pool: Any = None) -> list[Episode]:
    """Play it to its end as an evaluation would that gives steps as little time as it may."""
    kinds = {kind for number in what.acts for kind in ACTS[number].kinds}
    with contextlib.ExitStack() as there:
        site = there.enter_context(questions.small_site()) if "web" in kinds else ""
        teacher = there.enter_context(picky_teacher()) if "taught" in kinds else ""
        return _play(what, ledger, make_pool, tasks_of(what, ledger.parent, site, teacher))


def _play(what: Play, ledger: Path, make_pool: Any, played: dict[str, tuple[Task, tuple[str, ...]]]) -> list[Episode]:
    policy = Says({name: replies for name, (_, replies) in played.items()})
    tasks = [task for task, _ in played.values()]
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    plan = [replace(one, limits=replace(one.limits, step_s=shortest_s(one.task.benchmark))) for one in plan]
    pool: Pool = make_pool(policy) if make_pool else ThreadPool(policy, what.in_flight)
    try:
        with Ledger(ledger) as book:
            progress = Progress(io.StringIO(), time.monotonic)
            return list(run_episodes(plan, pool, book, retries=RetryPolicy(), progress=progress, clock=time.monotonic))
    finally:
        pool.close()


def shortest_s(kind: str) -> float:
    """The least time of a step that an evaluation of this kind's benchmark takes."""
    return find(BENCHMARK[kind]).min_step_s


def _commands_that_win() -> list[str]:
    env = ALFWorldTextEnv()
    _, info = env.reset(seed=0, options={**_OPTIONS["alfworld"], "hints": True})
    commands, won = [], False
    while not won and len(commands) < 50:
        commands.append(str(info["hints"]["expert"]))
        _, _, won, _, info = env.step(commands[-1])
    return commands


def _household(archive: Path) -> tuple[str, tuple[str, ...]]:
    """A game that the expert wins in few commands, and the cell that does the same."""
    for name, game in sorted(household_games(archive).items()):
        house = Game(game)
        expert, calls = Expert(house.opening), []
        while not house.won and len(calls) < 20:
            command = _old(expert.advice())
            expert.observe(command, house.step(command))
            calls.append(_call(command))
        if house.won:
            return name, (f"<execute>{chr(10).join(calls)}</execute>",)
    raise ValueError(f"{archive}: no game that is won in 20 commands")


def _old(command: str) -> str:
    """In the grammar of the real games."""
    if command.startswith("move "):
        thing, _, place = command.removeprefix("move ").partition(" to ")
        return f"put {thing} in/on {place}"
    return command


def _call(command: str) -> str:
    """The call of a tool that gives this command."""
    for tool in HOUSEHOLD:
        parts = tool.command(*("\0" * len(tool.parameters))).split("\0") if tool.command else []
        rest, found = command, []
        for before, after in itertools.pairwise(parts):
            if not rest.startswith(before):
                break
            rest = rest.removeprefix(before)
            at = rest.find(after) if after else len(rest)
            found.append(rest[:at])
            rest = rest[at:]
        else:
            if rest == (parts[-1] if len(parts) > 1 else parts[0]):
                return f"print({tool.name}({', '.join(map(json.dumps, found))}))"
    raise ValueError(f"no tool says {command!r}")


def peak_bytes(status: str = "/proc/self/status") -> int:
    """The most memory that a process ever held."""
    line = next(line for line in Path(status).read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main(argv: Sequence[str]) -> None:
    what = Play(**json.loads(argv[0]))
    with tempfile.TemporaryDirectory() as folder:
        before, started = peak_bytes(), time.monotonic()
        episodes = play(what, Path(folder) / "episodes.jsonl")
    ended = [
        {"task": e.key.task, "outcome": e.outcome.value, "attempts": e.attempts, "wall_s": e.wall_s, "detail": e.detail}
        | {"retried": e.retried}
        for e in episodes
    ]
    took_s = round(time.monotonic() - started, 1)
    print(json.dumps({"ended": ended, "peak_mib": peak_bytes() >> 20, "before_mib": before >> 20, "took_s": took_s}))


def order(what: Play) -> str:
    return json.dumps(dataclasses.asdict(what))


if __name__ == "__main__":
    main(sys.argv[1:])
