"""What a recorded run of MINT comes to by its own verdicts: the oracle of tables that are counted from episodes."""

from __future__ import annotations

from pathlib import Path

from envs.mint.recording import read_recording
from lemur_ray.report.mint_tables import Count, SubsetCounts


def counts_of_recording(file: Path) -> SubsetCounts:
    """Counts of one subset of a recorded run, from what its log says of every episode."""
    episodes = read_recording(file).episodes.values()
    failed = [episode for episode in episodes if not episode.solved]
    traceback = [
        e for e in failed if any("Traceback (most recent call last)" in (t.observation or "") for t in e.turns)
    ]
    invalid = [e for e in failed if e.counts["invalid_action"] > 0]
    n = len(episodes)
    return SubsetCounts(Count(n - len(failed), n), Count(len(traceback), n), Count(len(invalid), n))
