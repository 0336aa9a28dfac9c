"""The page of all episodes: filtered, sorted, searched, tasks against runs; and where links to an episode lead.

The episodes stand in the page as JSON of about a hundred bytes each, written one by one; a script draws what is asked
for. Knows nothing of what was said in them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.escape import inline, printable
from lemur_ray.report.pages.markup import page_end, page_start
from lemur_ray.report.pages.scripts import EPISODES_SCRIPT
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST, Entry, inline_transcripts, write_transcripts
from lemur_ray.report.policy_results import PolicyResult

_CHOICES = (("benchmark", "benchmark"), ("run", "run"), ("kind", "kind of task"), ("end", "how it ended"))
_PAIR = (("a", "first run"), ("b", "second run"), ("only", "which tasks"))


SQUARES = 800
"""A report shows so many episodes as squares; of more it says how many there are, and where."""


def write_all(
    out: Path,
    title: str,
    groups: Mapping[str, Sequence[PolicyResult]],
    earlier: Sequence[PolicyResult],
    may_inline: bool = False,
) -> tuple[dict[str, list[PolicyResult]], str]:
    """Write every transcript and the list of episodes; ``groups`` with links, and transcripts for the page itself.

    ``may_inline``: transcripts that are few enough stand on ``index.html``.
    """
    played = [p for group in groups.values() for p in group]
    named = [(p, p.name) for p in played] + [(p, f"{p.report.policy} {p.report.recipe[:6]}, earlier") for p in earlier]
    entries = [Entry(episode, who) for p, who in named for episode in p.stored]
    few = sum(len(p.episodes) for p in played) <= SQUARES
    talk = inline_transcripts(out, entries) if may_inline and few else ""
    if talk:
        links = {entry.episode.anchor: f"index.html#{entry.episode.anchor}" for entry in entries}
        write_transcripts(out / "transcripts", [], "index.html")
    else:
        links = write_transcripts(out / "transcripts", entries, "index.html")
    write_episode_list(out / EPISODE_LIST, title, entries, links, "index.html")
    here = {anchor: link.removeprefix("index.html") for anchor, link in links.items()}
    linked = {
        name: [replace(p, links=[here[e.anchor] for e in p.stored]) if few else p for p in group]
        for name, group in groups.items()
    }
    return linked, talk


def write_episode_list(path: Path, title: str, entries: Sequence[Entry], links: Mapping[str, str], back: str) -> None:
    """``links``: anchor -> address from the folder of ``path``. ``back``: the report's page, in that folder."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(page_start(f"{title}: all episodes", script=EPISODES_SCRIPT, wide=True))
            file.write(_shell(title, back))
            file.write('<script type="application/json" id="data">')
            for piece in _data(entries, links):
                file.write(piece.replace("<", "\\u003c"))
            file.write("</script>" + page_end())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _shell(title: str, back: str) -> str:
    selects = "".join(f'<select id="{i}" aria-label="{said}"></select>' for i, said in (*_CHOICES, *_PAIR))
    return (
        f'<nav><a href="{inline(back)}">back to the report</a></nav><h1>{inline(title)}: all episodes</h1>'
        '<div class="choose"><button id="list">list</button><button id="matrix">tasks &times; runs</button>'
        '<input id="q" type="search" placeholder="task, kind, run or end" aria-label="search"></div>'
        f'<div class="choose">{selects}</div><p class="soft" id="count"></p>'
        "<noscript><p>This list needs its script; the report's squares lead to transcripts without it.</p></noscript>"
        '<div class="scroll"><table class="list"><thead id="head"></thead><tbody id="rows"></tbody></table></div>'
        '<button class="more" id="more">show more</button>'
        '<p class="soft">The address keeps what is chosen here. What was said in the episodes is searched by '
        "<code>jobs/report.py --find TEXT</code>.</p>"
    )


def _data(entries: Sequence[Entry], links: Mapping[str, str]) -> Iterator[str]:
    """JSON in pieces: names once, then a row an episode (see the script for its columns)."""
    keys = list(dict.fromkeys(_run(entry) for entry in entries))
    run_of = {key: i for i, key in enumerate(keys)}
    categories = {name: i for i, name in enumerate(dict.fromkeys(e.episode.category for e in entries))}
    outcomes = {outcome: i for i, outcome in enumerate(Outcome) if any(e.episode.outcome is outcome for e in entries)}
    outcomes = {outcome: i for i, outcome in enumerate(outcomes)}
    pages = {page: i for i, page in enumerate(dict.fromkeys(address.partition("#")[0] for address in links.values()))}
    names = ("benchmark", "name", "policy", "recipe")
    yield '{"benchmarks":' + _json(dict.fromkeys(key[0] for key in keys))
    yield ',"runs":' + _json(dict(zip(names, map(printable, key), strict=True)) for key in keys)
    yield ',"categories":' + _json(map(printable, categories))
    yield ',"outcomes":' + _json({"name": o.value, "scored": o.scored} for o in outcomes)
    yield ',"pages":' + _json(pages) + ',"rows":[\n'
    for number, entry in enumerate(entries):
        e, steps = entry.episode, entry.episode.trajectory.steps
        row = [run_of[_run(entry)], printable(e.key.task), categories[e.category], outcomes[e.outcome]]
        row += [e.score, len(steps), round(e.wall_s, 3)]
        row += [sum(s.prompt_tokens for s in steps), sum(s.completion_tokens for s in steps), e.key.epoch]
        row += [pages[links[e.anchor].partition("#")[0]], e.anchor]
        yield (",\n" if number else "") + json.dumps(row, separators=(",", ":"), allow_nan=False)
    yield "]}"


def _run(entry: Entry) -> tuple[str, str, str, str]:
    key = entry.episode.key
    return key.benchmark, entry.who, key.policy, key.recipe


def _json(values: Iterable[Any]) -> str:
    return json.dumps([printable(v) if isinstance(v, str) else v for v in values], separators=(",", ":"))
