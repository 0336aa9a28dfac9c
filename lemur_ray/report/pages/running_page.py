"""The page of the episodes that are being played, with their turns until now; part of a live report alone."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.report.ledgers.stored_episodes import anchor_of
from lemur_ray.report.pages.markup import Page
from lemur_ray.report.pages.rendering import write_stream
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST
from lemur_ray.report.pages.transcripts import transcript
from lemur_ray.rollout.episode_record import running_episodes
from lemur_ray.rollout.evaluation_folder import RUNNING, evaluation_folders, remove_turns, replace_file

PAGE, STATE = "running.html", "running.json"
"""File names of the page, and of its version and number of episodes, which open pages ask for."""
MAX_SHOWN = 200
"""Maximum number of episodes on the page."""


class RunningEpisodes:
    """Writes the page of running episodes of results folders to ``out``. Runs on this machine write their turns once a
    folder for them exists in the results folder, which ``refresh`` creates."""

    def __init__(self, folders: Sequence[Path], out: Path) -> None:
        self._folders, self._out = folders, out
        self._files: list[tuple[Path, int]] | None = None
        self._made: set[Path] = set()
        self._version = 0

    def refresh(self) -> None:
        """Write the page if a turn or an episode has ended since the last call."""
        watched = [
            (one / RUNNING, number)
            for number, folder in enumerate(self._folders, 1)
            for one in evaluation_folders([str(folder)])
        ]
        for folder, _ in watched:
            with contextlib.suppress(OSError):  # the results folder is read-only, or does not exist yet
                folder.mkdir(exist_ok=True)
                self._made.add(folder)
        files: list[tuple[Path, int]] = []
        for path in sorted(path for folder, _ in watched for path in folder.glob("*.jsonl")):
            with contextlib.suppress(OSError):
                files.append((path, path.stat().st_size))
        if files == self._files:
            return
        # Two folders may be those of the same run on two machines, so the second one's addresses are numbered.
        episodes = [
            (anchor_of(one.key) + (f"-{number}" if number > 1 else ""), one)
            for folder, number in watched
            for one in running_episodes(folder)
        ]
        episodes.sort(key=lambda entry: entry[1].started)  # the oldest stay on the page until they end
        shown = (transcript(one, name, one.key.policy, PAGE, running=True) for name, one in episodes[:MAX_SHOWN])
        page, more = Page("Running episodes", EPISODE_LIST), max(0, len(episodes) - MAX_SHOWN)
        write_stream(self._out / PAGE, "running", page=page, number=len(episodes), more=more, transcripts=shown)
        self._files, self._version = files, self._version + 1
        replace_file(self._out / STATE, json.dumps({"version": self._version, "episodes": len(episodes)}))

    def close(self) -> None:
        """Remove the folders of turns from the results folders, so that runs write none any more."""
        for folder in self._made:
            remove_turns(folder)
