"""Episodes of a ledger without their texts; the text of one episode is read from the file on demand.

Fifty thousand episodes are gigabytes of conversation, but pages count a few numbers per turn. A ``StoredEpisode`` has
those numbers and the position of its line in the ledger. Knows nothing of what is counted or drawn."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Step, Trajectory
from lemur_ray.rollout.ledger import read_records, record_at
from lemur_ray.text.tools_in_words import OPEN

TRACEBACK = "Traceback (most recent call last)"
"""The only text of observations that pages search for."""


@dataclass(frozen=True)
class Place:
    """The line of a ledger: file, byte ``offset`` and ``size``. ``digest``: of its bytes; ``shared``: shared openings
    that lines of the file refer to."""

    path: Path
    offset: int
    size: int
    digest: str
    shared: dict[str, tuple[Message, ...]] = field(repr=False, compare=False)


@dataclass(frozen=True)
class StoredEpisode(Episode):
    """An episode whose opening and texts are at ``place``. ``anchor``: its address in pages, derived from its key."""

    place: Place = field(kw_only=True)
    anchor: str = field(kw_only=True)

    def load(self) -> Episode:
        """The episode with all texts, read from its ledger. Raises LedgerError if the file has changed,
        FileNotFoundError if it is gone."""
        episode = record_at(self.place.path, self.place.offset, self.place.size, self.place.shared)
        return replace(episode, key=self.key)


def anchor_of(key: EpisodeKey) -> str:
    """``e`` and 16 hex digits that identify a key in addresses, the same in every report with the episode."""
    parts = [key.benchmark, key.task, key.policy, key.recipe, key.epoch]
    return "e" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def stored_episodes(path: Path) -> list[StoredEpisode]:
    """The current episode of each key in the ledger ``path``, in the order of the keys' first records, without texts.
    Raises LedgerError if a complete line is not an episode, FileNotFoundError if there is no ledger."""
    records: dict[EpisodeKey, StoredEpisode] = {}
    for episode in _read(path):
        before = records.get(episode.key)
        if before is None or (episode.outcome.scored and not before.outcome.scored):
            records[episode.key] = episode
    return list(records.values())


def drop_texts(episodes: Iterable[Episode]) -> list[Episode]:
    """Copies of the episodes without texts, with the numbers that pages need: a hundred thousand fit in memory."""
    return [replace(episode, trajectory=_counted(episode.trajectory)) for episode in episodes]


def _read(path: Path) -> Iterator[StoredEpisode]:
    shared: dict[str, tuple[Message, ...]] = {}
    names: dict[str, str] = {}
    for offset, line, episode in read_records(path, shared):
        place = Place(path, offset, len(line), hashlib.blake2b(line, digest_size=8).hexdigest(), shared)
        fields = {name: getattr(episode, name) for name in Episode.__dataclass_fields__}
        fields |= {"category": names.setdefault(episode.category, episode.category)}
        fields |= {"trajectory": _counted(episode.trajectory)}
        yield StoredEpisode(**fields, place=place, anchor=anchor_of(episode.key))


def _counted(trajectory: Trajectory) -> Trajectory:
    steps = tuple(_numbers(step) for step in trajectory.steps)
    return Trajectory((), steps, tools=trajectory.tools and ({},))  # whether any were offered


def _numbers(step: Step) -> Step:
    observation = TRACEBACK if TRACEBACK in step.observation else ""
    action = None if step.action is None else ""
    reply = OPEN if OPEN in step.reply else ""  # for the count of calls that an endpoint left in the text
    return Step(**{**vars(step), **_NO_TEXTS, "reply": reply, "action": action, "observation": observation})


_NO_TEXTS = {"reasoning": "", "tool_calls": (), "results": ()}
