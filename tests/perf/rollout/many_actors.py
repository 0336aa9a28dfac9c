"""What the driver of a run takes with thousands of actors: orders a second, processor time and memory.

The real runner, pool and ledger; actors are simulated here: each episode ends after a latency, with turns of text, and
now and then a host is lost with all that its actors play. One JSON line for every tenth of the episodes and one at the
end. By name, on a quiet machine:

    python -m tests.perf.rollout.many_actors [--actors 5000] [--episodes 100000] [--per-actor 8] [--turns 6] [--rate 0]
"""

from __future__ import annotations

import argparse
import heapq
import io
import itertools
import json
import random
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lemur_ray.agents.messages import Message, Sampling
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Outcome, Step, Task, Trajectory
from lemur_ray.rollout.actors.actor import ActorEvent, ActorLost, ActorStarted, EpisodeEnded
from lemur_ray.rollout.actors.pool import ActorPool, PoolLimits
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy

TEXT = " ".join(random.Random(0).choices(("drawer", "cabinet", "opens", "nothing", "select", "name", "from"), k=80))
MOST_TOLD = 500
PER_HOST = 16
"""Actors that are lost together."""


class Simulation:
    """A backend, and the thread in which its actors live: it tells what is due, as fast as the driver takes it.

    ``rate``: episodes a second that end at most, 0 for no bound. ``losses``: every so many episodes a host is lost.
    """

    def __init__(self, turns: int, rate: float, losses: int) -> None:
        self.turns, self.rate, self.losses = turns, rate, losses
        self.cpu_s = 0.0
        """Of the simulation itself."""
        self.backlog: Callable[[], int] = lambda: 0
        """What was told, and not yet taken by the driver."""
        self._now = 0.0
        """On a clock of its own, which only says who comes first."""
        self._lock = threading.Condition()
        self._due: list[tuple[float, int, Simulated, int, str]] = []
        self._numbers = itertools.count()
        self._random = random.Random(0)
        self._hosts: list[list[Simulated]] = []
        self._over = False
        threading.Thread(target=self._live, daemon=True).start()

    def start_actor(self, tell: Callable[[ActorEvent], None]) -> Simulated:
        if not self._hosts or len(self._hosts[-1]) == PER_HOST:
            self._hosts.append([])
        actor = Simulated(self, tell)
        self._hosts[-1].append(actor)
        tell(ActorStarted(1, elsewhere=True))
        return actor

    def request_pressure(self, tell: Callable[[int, Pressure], None]) -> None:
        tell(0, Pressure(512, 3, 1))

    def shortage(self, num_actors: int) -> str:
        return f"{num_actors} actors wait"

    def close(self) -> None:
        with self._lock:
            self._over = True
            self._lock.notify()

    def playing(self, actor: Simulated, ticket: int, name: str) -> None:
        with self._lock:
            due = self._now + self._random.expovariate(1 / 30.0)
            heapq.heappush(self._due, (due, next(self._numbers), actor, ticket, name))
            self._lock.notify()

    def _live(self) -> None:
        began, told = time.monotonic(), 0
        while True:
            with self._lock:
                while not self._due and not self._over:
                    self._lock.wait()
                if self._over:
                    return
                self._now, _, actor, ticket, name = heapq.heappop(self._due)
            if actor.ended:
                continue
            told += 1
            while self.backlog() > MOST_TOLD:
                time.sleep(0.001)
            if self.rate and (early_s := began + told / self.rate - time.monotonic()) > 0:
                time.sleep(early_s)
            actor.tell(EpisodeEnded(ticket, self._attempt(name)))
            if self.losses and told % self.losses == 0:
                for one in self._hosts[self._random.randrange(len(self._hosts))]:
                    if not one.ended:
                        one.tell(ActorLost("its host is lost", with_host=True))
            self.cpu_s = time.thread_time()

    def _attempt(self, name: str) -> Attempt:
        steps = tuple(
            Step(f"{name} {turn} {TEXT}", "go", f"{turn} {TEXT}", 0.0, True, 1.0, 0.1, 900, 60)
            for turn in range(self.turns)
        )
        solved = self._random.random() < 0.5
        outcome, score = (Outcome.SOLVED, 1.0) if solved else (Outcome.FAILED, 0.0)
        return Attempt(outcome, score, Trajectory((Message("user", f"{name} {TEXT}"),), steps))


class Simulated:
    def __init__(self, simulation: Simulation, tell: Callable[[ActorEvent], None]) -> None:
        self.tell, self.ended = tell, False
        self._simulation = simulation

    def settle(self) -> None:
        pass

    def play(self, spec: EpisodeSpec, ticket: int) -> None:
        self._simulation.playing(self, ticket, spec.task.id)

    def request_pressure(self) -> None:
        self.tell(Pressure())

    def end(self) -> None:
        self.ended = True


class Watched(ActorPool):
    """Says how things stand after every tenth of the episodes."""

    def __init__(self, simulation: Simulation, episodes: int, actors: int, per_actor: int) -> None:
        self._simulation, self._episodes, self._taken = simulation, episodes, 0
        self._began, self._cpu_before = time.monotonic(), time.process_time()
        super().__init__(simulation, PoolLimits(actors, per_actor))
        simulation.backlog = self._events.qsize
        self.say()

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        ended = super().collect(timeout_s)
        for _, attempt in ended:
            if attempt.outcome.scored:
                self._taken += 1
                if self._taken % max(1, self._episodes // 10) == 0:
                    self.say()
        return ended

    def say(self) -> None:
        took_s = time.monotonic() - self._began
        cpu_s = time.process_time() - self._cpu_before - self._simulation.cpu_s
        found = {"episodes": self._taken, "s": round(took_s, 1), "orders_per_s": round(self._taken / took_s)}
        found |= {"driver_cpu_s": round(cpu_s, 1), "simulation_cpu_s": round(self._simulation.cpu_s, 1)}
        print(json.dumps({**found, "rss_mb": rss_mb(), "capacity": self.capacity}), flush=True)


def rss_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, number in (("actors", 5000), ("episodes", 100_000), ("per-actor", 8), ("turns", 6), ("losses", 2000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--rate", type=float, default=0.0)
    asked = parser.parse_args()
    tasks = [Task("made/up", f"t{n}", "none", f"kind {n % 30}", {"question": f"{n} {TEXT}"}) for n in range(1000)]
    epochs = asked.episodes // len(tasks)
    limits, sampling = EpisodeLimits(), Sampling()
    plan = EpisodePlan(tasks, epochs=epochs, policy="p", recipe="r" * 16, sampling=sampling, limits=limits)
    simulation = Simulation(asked.turns, asked.rate, asked.losses)
    print(json.dumps({"before_rss_mb": rss_mb(), "orders": len(plan)}), flush=True)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "episodes.jsonl") as ledger:
        pool = Watched(simulation, len(plan), asked.actors, asked.per_actor)
        began = time.monotonic()
        progress = Progress(io.StringIO(), time.monotonic)
        ended = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        took_s = time.monotonic() - began
        pool.close()
        size = (Path(folder) / "episodes.jsonl").stat().st_size
        found = {"orders_per_s": round(len(ended) / took_s), "ledger_mb": round(size / 1e6)}
        found |= {"peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}
        assert len(ended) == len(plan)
        print(json.dumps({"actors": asked.actors, "episodes": len(ended), **found}), flush=True)


if __name__ == "__main__":
    main()
