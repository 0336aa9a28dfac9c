"""Replays stored episodes: their environments get the stored replies again.

An episode that then ends differently has a wrong record, or an environment that is not deterministic."""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.agents.recording import record_episodes
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool


def replay_episodes(played: Sequence[tuple[Episode, Task]], in_flight: int) -> dict[EpisodeKey, Outcome]:
    """Play each episode's stored replies again on its task, ``in_flight`` episodes at a time, without a model, in
    threads of this process; progress goes to stderr. Returns the new outcomes by key."""
    recording = record_episodes((episode for episode, _ in played), "ledger")
    plan = [EpisodeSpec(episode.key, task) for episode, task in played]
    pool = ThreadPool(ReplayPolicy(recording), in_flight)
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "replay.jsonl") as ledger:
        progress = Progress(sys.stderr, time.monotonic, label="replay")
        ended = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        return {episode.key: episode.outcome for episode in ended}
