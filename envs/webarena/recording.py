"""Reads recorded WebArena runs: zip files of the published ``render_*.html`` files, one a task, and their logs.

Format: web-arena-x/webarena 17aa056, ``RenderHelper`` and ``run.py``. Each page of a file holds the observation, the
model's reply and the parsed action. Nothing is escaped, so files are parsed by markers and not as HTML. Element ids
belong to the recording browser: a replay acts on the element with the same words and rank (``Named``)."""

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from envs.webarena.actions.languages import FENCE
from envs.webarena.browser.tree import Element
from lemur_ray.agents.recording import RecordedEpisode, RecordedTurn, Recording, RecordingFormat, task_number
from lemur_ray.agents.replay_comparison import Comparison, EpisodeComparison
from lemur_ray.agents.trajectory import Episode, Task

NOTHING = "0"
Named = tuple[str, int, int]
"""Line of an element in an observation (role, name, properties); its rank, from 0, among equal lines above it, and
among those of equal role and name."""
MOST_BYTES = 256 << 20
"""Maximum size of one file, with its pictures."""
_FILE = re.compile(r"(?:^|/)render_(\d+)\.html$")
_RESULT = re.compile(r"\[Result\] \((PASS|FAIL)\) \S*?(\d+)\.json")
_PAGE = re.compile(r"<h2>New Page</h2>\s*<h3 class=[\"']url[\"']>")
_PICTURE = re.compile(r"<img src=[\"']data:image/[^>]*>")
_OBSERVATION = re.compile(r"<div class=[\"']state_obv[\"']><pre>(.*?)</pre></?div>\s*(?:\n|<div class=)", re.DOTALL)
_REPLY = re.compile(
    r"<div class=[\"']raw_parsed_prediction[\"'][^>]*><pre>(.*)</pre></div>\s*<div class=[\"']action_object", re.DOTALL
)
_UNDERSTOOD = re.compile(r"<div class=[\"']parsed_action[\"'][^>]*><pre>(.*)</pre></div>", re.DOTALL)
_INTENT = re.compile(r"^intent: (.*)$", re.MULTILINE)
_ELEMENT = re.compile(r"^\t*\[(\d+)\] (.*)$", re.MULTILINE)
_ROLE_AND_NAME = re.compile(r"""\S+ (?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_ACTED_ON = re.compile(r"\w+ ?(?:\[(\d+)\]|\(id=(\d+))")
"""A parsed action on an element, in either language."""
_ACTS_ON = re.compile(r"\b(?:click|hover|type)\s*\[(\d+)\]")


@dataclass(frozen=True)
class WebEpisode(RecordedEpisode):
    """A recorded WebArena episode. ``seen`` has the observation before each turn."""

    seen: tuple[str, ...] = ()

    def named(self) -> list[Named | None]:
        """The element that each turn acts on, by its words; None for an action without one, or an unknown id."""
        return [_named_element(turn.reply, seen) for turn, seen in zip(self.turns, self.seen, strict=True)]


def _named_element(reply: str, seen: str) -> Named | None:
    fenced = reply.split(FENCE, 2)  # the first block, which is what acts
    acts = _ACTS_ON.findall(fenced[1]) if len(fenced) == 3 else []
    return _element(acts[0], seen) if acts else None


def as_named(task: Task, episode: Episode) -> Task:
    """A copy of the task for a replay of a stored episode, with the element of each action in its option ``named``."""
    named: list[Named | None] = []
    for turn, step in enumerate(episode.trajectory.steps):
        acts = _ACTED_ON.match(step.action or "")
        seen = episode.trajectory.shown(turn)[-1].content
        named.append(_element(acts[1] or acts[2], seen) if acts else None)
    return replace(task, options={**task.options, "named": named})


def _element(wanted: str, seen: str) -> Named | None:
    before: list[str] = []
    for at, words in _ELEMENT.findall(seen):
        if at == wanted:
            called = _role_and_name(words)
            return words, before.count(words), sum(_role_and_name(one) == called for one in before)
        before.append(words)
    return None


def _role_and_name(words: str) -> str:
    """Return the role and name of an observation's line without its properties; other lines are returned whole."""
    match = _ROLE_AND_NAME.match(words)
    return match[0] if match else words


def current_id(named: Named | None, elements: Mapping[str, Element]) -> str:
    """The id in ``elements`` (the present observation) of the element that a recorded action refers to; "0", which no
    element has, if it is missing. Elements match by their whole line first, then by role and name, since properties
    (such as the focus) may differ."""
    if named is None:
        return NOTHING
    words, place, place_of_name = named
    same = [at for at, one in elements.items() if one.text == words]
    like = [at for at, one in elements.items() if f"{one.role} {one.name!r}" == _role_and_name(words)]
    candidates, place = (same, place) if same else (like, place_of_name)
    return candidates[min(place, len(candidates) - 1)] if candidates else NOTHING


@lru_cache(maxsize=2)
def read_recording(path: Path) -> Recording[WebEpisode]:
    """Read a zip file of ``render_<task>.html`` files and logs (``*.txt``) with their results. Raises
    FileNotFoundError, or ValueError that names the file and its fault."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such recording")
    try:
        with zipfile.ZipFile(path) as packed:
            return Recording(path.stem, dict(_episodes(packed, path)), task_number)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path}: no zip file: {error}; expected render_*.html and their log in one, as published"
        ) from error


def _episodes(packed: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, WebEpisode]]:
    files = {str(int(match[1])): one for one in packed.infolist() if (match := _FILE.search(one.filename))}
    logs = [one for one in packed.infolist() if one.filename.endswith(".txt") and one.file_size <= MOST_BYTES]
    results = {task: end for one in logs for end, task in _RESULT.findall(_text(packed, one))}
    if not files:
        raise ValueError(f"{path}: no render_*.html in it")
    for task, one in sorted(files.items(), key=lambda item: int(item[0])):
        if task not in results:
            raise ValueError(f"{path}: its logs (*.txt) hold no result of task {task}")
        if one.file_size > MOST_BYTES:
            raise ValueError(f"{path}, {one.filename}: {one.file_size:,} bytes, at most {MOST_BYTES:,} are read")
        try:
            yield task, read_render(_text(packed, one), task, results[task] == "PASS")
        except ValueError as error:
            raise ValueError(f"{path}, {one.filename}: {error}") from error


def _text(packed: zipfile.ZipFile, one: zipfile.ZipInfo) -> str:
    return packed.read(one).decode("utf-8", "replace")


def read_render(text: str, task: str, solved: bool) -> WebEpisode:
    """Parse one ``render_*.html`` file. A turn results in the next page's observation. ``solved``: result in the log.
    Raises ValueError if it belongs to another task or a part is missing."""
    head, *pages = _PAGE.split(_PICTURE.sub("", text))
    asked = _INTENT.search(head)
    if f"task_id: {task}\n" not in head or asked is None:
        raise ValueError(f"expected the task {task} and its intent at the beginning")
    seen, replies = [], []
    for number, page in enumerate(pages, 1):
        observation, raw, understood = _OBSERVATION.search(page), _REPLY.search(page), _UNDERSTOOD.search(page)
        if observation is None or raw is None or understood is None:
            raise ValueError(f"page {number} lacks an observation, a prediction or an action")
        seen.append(observation[1])
        replies.append(raw[1] or f"{FENCE}{understood[1]}{FENCE}")  # an early stop has no prediction
    turns = [RecordedTurn(reply, after) for reply, after in zip(replies, [*seen, None][1:], strict=True)]
    return WebEpisode(task, asked[1], tuple(turns), solved, seen=tuple(seen))


def _compare(episode: Episode, recorded: WebEpisode) -> EpisodeComparison:
    steps = episode.trajectory.steps
    return EpisodeComparison(
        {"turns": len(steps), "carried_out": sum(s.valid for s in steps), "recorded": len(recorded.turns)}
    )


RENDERED = RecordingFormat(
    read_recording,
    Comparison(_compare, ("turns", "carried_out", "recorded"), {"actions_carried_out": ("carried_out", "turns")}),
    question=lambda task: str(task.options["record"]["intent"]),
)
