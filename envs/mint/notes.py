"""Numbers that stand beside MINT's success rate: both graders, and the episodes that they separate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.grading.mint import GRADERS
from lemur_ray.grading.python_tests import HASH_SEED


def mint_notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Solved episodes by each grader, of those that are scored, and the ids on which the graders part.

    Where one grader ends an episode, what the other would have said of later turns is unknown: its number is a lower
    bound. Where programs were run, also the hash seed that they had.
    """
    scored = [episode for episode in episodes if episode.outcome.scored]
    solved = {grader: {e.key.task for e in scored if e.scores.get(grader, 0.0) >= 1.0} for grader in GRADERS}
    strict, upstream = solved["strict"], solved["mint-2023"]
    programs = any(episode.key.benchmark in ("mint/humaneval", "mint/mbpp") for episode in episodes)
    return {
        **({"hash_seed": HASH_SEED} if programs else {}),
        "graders": {grader: {"solved": len(solved[grader]), "scored": len(scored)} for grader in GRADERS},
        "only_mint_2023": sorted(upstream - strict),
        "only_strict": sorted(strict - upstream),
    }
