"""Which episode stands on which page of transcripts, and the pages, each written only where it says something new.

All episodes of a task, whoever played it, stand on one page, so that two of them can be shown side by side. A page is
written episode by episode, read from the ledger as it goes: no page and no run is ever in memory as a whole. Knows
nothing of rates.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.report.escape import inline, slug
from lemur_ray.report.ledgers.pictures import pictured
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode
from lemur_ray.report.pages.markup import page_end, page_start
from lemur_ray.report.pages.transcripts import Shared, said_before, transcript

PAGE_BYTES = 1_500_000
"""Of the ledger, on one page; a single task is never cut in two."""
FORMAT = 3
"""Raised when the same episodes would give another page."""
EPISODE_LIST = "episodes.html"
"""The page that knows where every episode stands."""


@dataclass(frozen=True)
class Entry:
    """An episode, and who played it as the page calls them."""

    episode: StoredEpisode
    who: str


def inline_transcripts(out: Path, entries: Sequence[Entry]) -> str:
    """All transcripts for a page in ``out``; empty where they are too many for it."""
    if sum(_size(entry.episode) for entry in entries) > PAGE_BYTES:
        return ""
    shared: Shared = {}
    return "".join([_one(entry, out, "", shared) for entry in _by_task(entries)]) + _shared(shared)


def write_transcripts(folder: Path, entries: Sequence[Entry], back: str) -> dict[str, str]:
    """Write the pages of ``entries`` into ``folder``; anchor -> address, relative to the folder above.

    ``back``: the page to return to, in the folder above. Pages that this once wrote and nobody needs are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    links: dict[str, str] = {}
    pages = _pages(_by_task(entries))
    for name, (title, members) in pages.items():
        digest = _digest(title, members, back)
        if _written(folder / name) != digest:
            _write(folder / name, title, members, back, digest)
        links |= {entry.episode.anchor: f"{folder.name}/{name}#{entry.episode.anchor}" for entry in members}
    for path in folder.glob("*.html"):
        if path.name not in pages and _written(path):
            path.unlink()
    return links


def _by_task(entries: Iterable[Entry]) -> list[Entry]:
    """Entries of a task one after another; tasks in the order in which they first ended, so that pages grow behind."""
    tasks: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        tasks.setdefault((entry.episode.key.benchmark, entry.episode.key.task), []).append(entry)
    return [entry for members in tasks.values() for entry in members]


def _pages(entries: Sequence[Entry]) -> dict[str, tuple[str, list[Entry]]]:
    """File name -> title and episodes; benchmarks apart."""
    pages: dict[str, tuple[str, list[Entry]]] = {}
    number: dict[str, int] = {}
    current: dict[str, tuple[list[Entry], int]] = {}
    last = ("", "")
    for entry in entries:
        key = entry.episode.key
        members, size = current.get(key.benchmark, ([], PAGE_BYTES))
        if size + _size(entry.episode) > PAGE_BYTES and (key.benchmark, key.task) != last:
            members, size = [], 0
            number[key.benchmark] = number.get(key.benchmark, 0) + 1
            title = f"{key.benchmark}, transcripts {number[key.benchmark]}"
            pages[_file(key.benchmark, number[key.benchmark])] = (title, members)
        members.append(entry)
        current[key.benchmark] = (members, size + _size(entry.episode))
        last = (key.benchmark, key.task)
    return pages


def _file(benchmark: str, number: int) -> str:
    return f"{slug(benchmark)}.html" if number == 1 else f"{slug(benchmark)}-{number}.html"


def _size(episode: StoredEpisode) -> int:
    return episode.place.size


def _digest(title: str, members: Sequence[Entry], back: str) -> str:
    told = hashlib.blake2b(f"{FORMAT}|{title}|{back}".encode(), digest_size=16)
    for entry in members:
        told.update(f"|{entry.episode.anchor}|{entry.episode.place.digest}|{entry.who}".encode(errors="replace"))
    return told.hexdigest()


def _written(path: Path) -> str:
    """The digest of a page that is there; empty where there is none, or one of another make."""
    try:
        with path.open("rb") as file:
            head = file.read(200)
    except OSError:
        return ""
    _, found, rest = head.partition(b"<!-- episodes ")
    return rest[:32].decode("ascii", "replace") if found else ""


def _write(path: Path, title: str, members: Sequence[Entry], back: str, digest: str) -> None:
    shared: Shared = {}
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(page_start(title, f"<!-- episodes {digest} -->", listed=f"../{EPISODE_LIST}"))
            file.write(
                f'<nav><a href="../{inline(back)}">back to the report</a><a href="../{EPISODE_LIST}">all episodes</a>'
                f'</nav><h1>{inline(title)}</h1><p class="lede">'
                f"{len(members)} episodes. Open one to read it turn by turn.</p>"
            )
            for entry in members:
                file.write(_one(entry, path.parent.parent, "../", shared))
            file.write(_shared(shared) + page_end())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _one(entry: Entry, out: Path, up: str, shared: Shared) -> str:
    """``up``: the way from the page to ``out``."""
    episode, anchor = entry.episode.load(), entry.episode.anchor
    seen = pictured(episode, anchor, out, up, entry.episode.place.path)
    return transcript(episode, anchor, entry.who, f"{up}{EPISODE_LIST}", shared, seen)


def _shared(shared: Mapping[str, Sequence[object]]) -> str:
    return "".join(
        f'<details class="ep" id="s{name}"><summary>what many episodes begin with</summary>'
        f'<div class="talk">{said_before(head)}</div></details>'  # type: ignore[arg-type]
        for name, head in shared.items()
    )
