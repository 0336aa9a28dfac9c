"""The Wikipedia tool of MINT, with three sources of pages: live, a local index, recorded answers.

The rule is that of mint-bench 3f7f12c: the first 300 characters of the query, the two best titles, "Page: ...",
"Summary: ...", 1000 characters in all. Without a page it is "no result"; ``compat`` gives upstream's odd sentence."""

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from envs.mint.recording import MintEpisode, text_of
from lemur_ray.agents.endpoint_retries import requested_pause_s
from lemur_ray.agents.external_calls import ExternalCallError
from lemur_ray.agents.recording import Recording
from lemur_ray.host.json_files import read_json_lines

MAX_QUERY, MAX_TITLES, MAX_ANSWER = 300, 2, 1000
NO_RESULT = "no result"
NO_RESULT_2023 = "Wikipedia Search Result was found"
_LITERAL = re.compile(
    r"\A\s*<execute>\s*print\(wikipedia_search\((?:query\s*=\s*)?(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')\)\)\s*</execute>",
    re.DOTALL,
)
_BUSY = frozenset({429, 502, 503, 504})
_PAUSE_S = 5.0
_OF_MACHINES = re.compile(r"maxlag|ratelimited|readonly|internal_|too-busy|backend|unavailable|timeout")
"""Error codes of the API for faults of its own, which do not depend on the query."""
_ANY_WORD = "water"


class WikipediaUnavailable(ExternalCallError):
    """Raised if a source cannot answer: an infrastructure failure, never the policy's."""


class _QuestionRefused(WikipediaUnavailable):
    """Raised if the source rejects this query, but may accept others."""


@dataclass(frozen=True)
class Page:
    """The parts of a Wikipedia article that the tool shows."""

    title: str
    summary: str


class PageSource(Protocol):
    """A source of Wikipedia pages: the live site, or a local index."""

    def pages(self, query: str) -> list[Page]:
        """The pages for a query, at most two, best first. Raises WikipediaUnavailable if the source does not answer."""


@dataclass(frozen=True)
class RecordedAnswers:
    """Recorded answers of the search tool by query. ``of_task``, by (task id, query), takes precedence."""

    answers: Mapping[str, str]
    of_task: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def answer(self, query: str, task: str = "") -> str:
        """The recorded answer to ``query`` in ``task``, else in any task. Raises WikipediaUnavailable without one."""
        recorded = self.of_task.get((task, query), self.answers.get(query))
        if recorded is None:
            raise WikipediaUnavailable(
                f"no recorded answer to {query[:200]!r}: recorded answers serve the logs they come from alone; use a "
                "local index or the live source"
            )
        return recorded


def wikipedia_search(query: str, source: PageSource | RecordedAnswers, *, task: str = "", compat: bool = False) -> str:
    """The search tool's answer to a query, at most 1000 characters. ``task``: id of the task, for recorded answers;
    ``compat``: upstream's sentence for no result. Raises WikipediaUnavailable if the source cannot answer."""
    if isinstance(source, RecordedAnswers):
        return source.answer(query, task)
    query = query[:MAX_QUERY]
    pages = source.pages(query) if query.strip() else []
    shown = [f"Page: {page.title}\nSummary: {page.summary}" for page in pages if page.summary]
    if not shown:
        return NO_RESULT_2023 if compat else NO_RESULT
    return "\n\n".join(shown[:MAX_TITLES])[:MAX_ANSWER]


@dataclass(frozen=True)
class LiveWikipedia:
    """Queries the MediaWiki API at ``endpoint``, with retries for ``patience_s`` seconds. Redirects are followed,
    missing and disambiguation pages left out. A query that it rejects while it accepts another one (such as an unclosed
    pattern) has no result."""

    endpoint: str = "https://en.wikipedia.org/w/api.php"
    timeout_s: float = 10.0
    patience_s: float = 120.0
    """Maximum seconds of waiting for one query if the API is overloaded, in the pauses it asks for."""
    sleep: Callable[[float], None] = time.sleep

    def pages(self, query: str) -> list[Page]:
        try:
            hits = self._search(query)
        except _QuestionRefused:
            self._search(_ANY_WORD)
            return []
        titles = [hit["title"] for hit in hits.get("search", [])]
        return [page for title in titles if (page := self._page(title)) is not None]

    def _search(self, query: str) -> Mapping[str, Any]:
        return self._get(list="search", srsearch=query, srlimit=str(MAX_TITLES), srprop="")

    def _page(self, title: str) -> Page | None:
        answer = self._get(
            prop="extracts|pageprops",
            ppprop="disambiguation",
            exintro="1",
            explaintext="1",
            redirects="1",
            titles=title,
        )
        for page in answer.get("pages", {}).values():
            if "missing" not in page and "disambiguation" not in page.get("pageprops", {}):
                return Page(str(page["title"]), str(page.get("extract", "")))
        return None

    def _get(self, **parameters: str) -> Mapping[str, Any]:
        url = f"{self.endpoint}?{urllib.parse.urlencode({'action': 'query', 'format': 'json', **parameters})}"
        request = urllib.request.Request(url, headers={"User-Agent": "lemur-ray (agent evaluation)"})
        waited_s = 0.0
        while True:
            try:
                with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                    value = json.load(answer)
                break
            except urllib.error.HTTPError as fault:
                pause_s = requested_pause_s({name.lower(): text for name, text in fault.headers.items()}, time.time())
                pause_s = _PAUSE_S if pause_s is None else pause_s
                fault.close()
                if fault.code not in _BUSY or waited_s + pause_s > self.patience_s:
                    refused = 400 <= fault.code < 500 and fault.code not in _BUSY
                    kind = _QuestionRefused if refused else WikipediaUnavailable
                    raise kind(f"{self.endpoint}: {fault}") from fault
                self.sleep(pause_s)
                waited_s += max(pause_s, 1.0)
            except (OSError, ValueError) as fault:
                raise WikipediaUnavailable(f"{self.endpoint}: {fault}") from fault
        refusal = value.get("error") if isinstance(value, dict) else None
        if isinstance(refusal, dict) and not _OF_MACHINES.search(str(refusal.get("code"))):
            raise _QuestionRefused(f"{self.endpoint}: {str(refusal)[:300]}")
        if not isinstance(value, dict) or "error" in value or not isinstance(value.get("query", {}), dict):
            raise WikipediaUnavailable(f"{self.endpoint}: {str(refusal or value)[:300]}")
        result: Mapping[str, Any] = value.get("query", {})
        return result


def answers_of_recording(recording: Recording[MintEpisode]) -> RecordedAnswers:
    """The answers in a recording, from turns whose whole code prints one search for a literal text."""
    answers: dict[str, str] = {}
    of_task: dict[tuple[str, str], str] = {}
    for episode in recording.episodes.values():
        for turn in episode.turns:
            query, text = literal_query(turn.reply), text_of(turn)
            if query is None or text is None or "Traceback (most recent call last)" in text:
                continue
            answers.setdefault(query, text)
            of_task.setdefault((episode.task, query), text)
    return RecordedAnswers(answers, of_task)


def literal_query(reply: str) -> str | None:
    """The query of a reply that only prints one search for a literal text, else None."""
    if "<solution>" in reply or reply.count("<execute>") != 1:
        return None
    match = _LITERAL.search(reply[reply.index("<execute>") :])
    if match is None:
        return None
    body = match[1][1:-1]
    return re.sub(r"\\(['\"\\])", r"\1", body) if "\\" in body else body


def read_answers(path: Path) -> RecordedAnswers:
    """Read lines ``{"query": ..., "answer": ...}``, plain or gzip. Raises ValueError that names file and line."""
    answers: dict[str, str] = {}
    for number, row in read_json_lines(path):
        try:
            answers.setdefault(str(row["query"]), str(row["answer"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: expected query and answer: {error}") from error
    return RecordedAnswers(answers)
