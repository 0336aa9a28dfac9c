"""The page of all episodes, with filters, sorting, search and a matrix of tasks and runs; permanent links lead to it.

Episodes are rows of JSON in the page, about a hundred bytes each and written one by one; a script draws them. Knows
nothing of the texts of episodes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.escape import printable
from lemur_ray.report.pages.markup import Page
from lemur_ray.report.pages.rendering import write_stream
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST, Entry, inline_transcripts, write_transcripts
from lemur_ray.report.policy_results import PolicyResult

SQUARES = 800
"""Maximum number of episodes that a report shows as squares; of more it shows counts by category."""


def write_all(
    out: Path,
    title: str,
    groups: Mapping[str, Sequence[PolicyResult]],
    earlier: Sequence[PolicyResult],
    may_inline: bool = False,
) -> tuple[dict[str, list[PolicyResult]], Markup]:
    """Write every transcript and the list of episodes into ``out``. Returns ``groups`` (results by benchmark) with a
    link for each episode, and the HTML of the transcripts that belong into index.html. ``earlier``: results of earlier
    versions, listed, too. ``may_inline``: few transcripts become part of index.html instead of pages of their own."""
    results = [r for group in groups.values() for r in group]
    named = [(r, r.name) for r in results] + [(r, f"{r.report.policy} {r.report.recipe[:6]}, earlier") for r in earlier]
    entries = [Entry(episode, who) for r, who in named for episode in r.stored]
    few = sum(len(r.episodes) for r in results) <= SQUARES
    transcripts = inline_transcripts(out, entries) if may_inline and few else Markup("")
    if transcripts:
        links = {entry.episode.anchor: f"index.html#{entry.episode.anchor}" for entry in entries}
        write_transcripts(out / "transcripts", [], "index.html")
    else:
        links = write_transcripts(out / "transcripts", entries, "index.html")
    page = Page(f"{title}: all episodes", wide=True, script="episodes.js")
    data = (Markup(piece.replace("<", "\\u003c")) for piece in _data(entries, links))  # no tag can end the script
    write_stream(out / EPISODE_LIST, "episode_list", page=page, back="index.html", data=data)
    relative = {anchor: link.removeprefix("index.html") for anchor, link in links.items()}
    linked = {
        name: [replace(r, links=[relative[e.anchor] for e in r.stored]) if few else r for r in group]
        for name, group in groups.items()
    }
    return linked, transcripts


def _data(entries: Sequence[Entry], links: Mapping[str, str]) -> Iterator[str]:
    """JSON in pieces: names once, then one row per episode; ``episodes.js`` names the columns."""
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
