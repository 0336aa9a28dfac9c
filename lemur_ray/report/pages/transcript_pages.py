"""Distributes episodes over pages of transcripts and writes the pages whose content has changed.

All episodes of a task are on one page, whichever policy played them, so that two can be shown side by side. Episodes
are read from the ledger one by one while a page is written: no page or run is in memory as a whole. Knows no rates."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from lemur_ray.report.escape import slug
from lemur_ray.report.ledgers.pictures import turn_pictures
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode
from lemur_ray.report.pages.markup import Page
from lemur_ray.report.pages.rendering import macro, write_stream
from lemur_ray.report.pages.transcripts import SharedOpenings, transcript

PAGE_BYTES = 1_500_000
"""Maximum bytes of ledger lines on one page; the episodes of one task always share a page."""
FORMAT = 4
"""Version of the pages' layout; a page of another version is written again."""
EPISODE_LIST = "episodes.html"
"""File name of the page that links to every episode."""


@dataclass(frozen=True)
class Entry:
    """An episode and the name of its policy (``who``) on the page."""

    episode: StoredEpisode
    who: str


def inline_transcripts(out: Path, entries: Sequence[Entry]) -> Markup:
    """HTML of all transcripts for a page in the folder ``out``; empty if they exceed ``PAGE_BYTES`` bytes."""
    if sum(entry.episode.place.size for entry in entries) > PAGE_BYTES:
        return Markup("")
    shared: SharedOpenings = {}
    transcripts = Markup("").join([_transcript(e, out, "", shared) for e in _by_task(entries)])
    return transcripts + macro("transcript", "shared_openings")(shared)


def write_transcripts(folder: Path, entries: Sequence[Entry], back: str) -> dict[str, str]:
    """Write the pages of ``entries`` into ``folder``; returns anchor -> address relative to the parent folder.
    ``back``: file name of the report's page, in the parent folder. Pages no longer needed are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    links: dict[str, str] = {}
    pages = _pages(_by_task(entries))
    for name, (title, members) in pages.items():
        digest = _digest(title, members, back)
        if _written_digest(folder / name) != digest:
            _write(folder / name, title, members, back, digest)
        links |= {entry.episode.anchor: f"{folder.name}/{name}#{entry.episode.anchor}" for entry in members}
    for path in folder.glob("*.html"):
        if path.name not in pages and _written_digest(path):
            path.unlink()
    return links


def _by_task(entries: Iterable[Entry]) -> list[Entry]:
    """Entries grouped by task, in the order in which tasks first ended, so that a growing run changes its last page."""
    tasks: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        tasks.setdefault((entry.episode.key.benchmark, entry.episode.key.task), []).append(entry)
    return [entry for members in tasks.values() for entry in members]


def _pages(entries: Sequence[Entry]) -> dict[str, tuple[str, list[Entry]]]:
    """File name -> title and episodes. Each benchmark has pages of its own."""
    pages: dict[str, tuple[str, list[Entry]]] = {}
    number: dict[str, int] = {}
    current: dict[str, tuple[list[Entry], int]] = {}
    last = ("", "")
    for entry in entries:
        key, size = entry.episode.key, entry.episode.place.size
        members, total = current.get(key.benchmark, ([], PAGE_BYTES))
        if total + size > PAGE_BYTES and (key.benchmark, key.task) != last:
            members, total = [], 0
            count = number[key.benchmark] = number.get(key.benchmark, 0) + 1
            name = slug(key.benchmark) + (f"-{count}.html" if count > 1 else ".html")
            pages[name] = (f"{key.benchmark}, transcripts {count}", members)
        members.append(entry)
        current[key.benchmark] = (members, total + size)
        last = (key.benchmark, key.task)
    return pages


def _digest(title: str, members: Sequence[Entry], back: str) -> str:
    """Digest of everything that a page is made from."""
    digest = hashlib.blake2b(f"{FORMAT}|{title}|{back}".encode(), digest_size=16)
    for entry in members:
        digest.update(f"|{entry.episode.anchor}|{entry.episode.place.digest}|{entry.who}".encode(errors="replace"))
    return digest.hexdigest()


def _written_digest(path: Path) -> str:
    """The digest in the first line of an existing page; empty for no page, or a page of another program."""
    try:
        with path.open("rb") as file:
            head = file.read(200)
    except OSError:
        return ""
    _, marker, rest = head.partition(b"<!-- episodes ")
    return rest[:32].decode("ascii", "replace") if marker else ""


def _write(path: Path, title: str, members: Sequence[Entry], back: str, digest: str) -> None:
    shared: SharedOpenings = {}
    page = Page(title, f"../{EPISODE_LIST}", remark=Markup(f"<!-- episodes {digest} -->"))
    transcripts = (_transcript(entry, path.parent.parent, "../", shared) for entry in members)
    values = {"back": back, "num_episodes": len(members), "transcripts": transcripts, "shared": shared}
    write_stream(path, "transcripts", page=page, **values)


def _transcript(entry: Entry, out: Path, up: str, shared: SharedOpenings) -> Markup:
    """One transcript. ``up``: relative address of ``out`` from the page."""
    episode, anchor = entry.episode.load(), entry.episode.anchor
    pictures = turn_pictures(episode, anchor, out, up, entry.episode.place.path)
    return transcript(episode, anchor, entry.who, f"{up}{EPISODE_LIST}", shared, pictures)
