"""A local Wikipedia: a full-text index (SQLite FTS5) of titles and lead sections, built from the user's dump.

Reads MediaWiki XML dumps (``pages-articles.xml``, plain, .gz or .bz2) and lines of ``{"title", "text"}`` (.jsonl, plain
or .gz). Redirects, disambiguation pages and other namespaces are left out."""

import bz2
import contextlib
import gzip
import html
import re
import sqlite3
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from envs.mint.search.wikipedia import MAX_TITLES, Page, WikipediaUnavailable
from lemur_ray.host.json_files import parse_json
from lemur_ray.storage.published_folder import replaced_file

LEAD_CHARS = 4_000
"""Maximum characters stored of a lead section. The tool shows 1000 characters of two pages."""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_UNSEEN = re.compile(r"<ref\b[^>]*/>|<(ref|gallery|math|timeline|score)\b[^>]*>.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
"""Markup that is not shown in the running text. References may be written without content."""
_TAG = re.compile(r"<[^>]+>")
_TEMPLATE = re.compile(r"\{\{\{[^{}]*\}\}\}|\{\{[^{}]*\}\}|\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_NO_TEXT = re.compile(r"\s*(?:File|Image|Category)\s*:", re.IGNORECASE)
_OUTSIDE = re.compile(r"\[https?://[^\s\]]+\s?([^\]]*)\]")
_SWITCH = re.compile(r"__[A-Z]+__")
_DISAMBIGUATION = re.compile(r"\{\{[^{}]*disambig", re.IGNORECASE)
_WORDS = re.compile(r"\w+")


def build_index(dump: Path, index: Path) -> int:
    """Index a dump and return the number of its articles. The index file appears complete or not at all. Raises
    FileNotFoundError, ValueError if the dump has no page or an unknown format."""
    if not dump.is_file():
        raise FileNotFoundError(f"{dump}: no such dump (a MediaWiki pages-articles XML, or lines of title and text)")
    with replaced_file(index) as partial, contextlib.closing(sqlite3.connect(partial)) as connection:
        connection.execute("CREATE VIRTUAL TABLE pages USING fts5(title, summary, tokenize='unicode61')")
        rows = ((page.title, page.summary) for page in _pages(dump))
        count = connection.executemany("INSERT INTO pages VALUES (?, ?)", rows).rowcount
        if not count:
            raise ValueError(f"{dump}: no article in it")
        connection.commit()
    return count


class WikipediaIndex:
    """Full-text search in an index of Wikipedia. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open an index. Raises FileNotFoundError with the command that builds one, ValueError if it is no index."""
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such index; build it with jobs/index_wikipedia.py --dump DUMP")
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            self._connection.execute("SELECT title FROM pages LIMIT 1").fetchone()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ValueError(f"{path}: not an index of Wikipedia: {error}") from error

    def pages(self, query: str) -> list[Page]:
        """The two best pages: with all words of the query first, then with any. Words in the title count ten times."""
        words = [f'"{word}"' for word in _WORDS.findall(query)]
        if not words:
            return []
        pages_by_title: dict[str, Page] = {}
        for operator in (" ", " OR "):
            for title, summary in self._match(operator.join(words)):
                pages_by_title.setdefault(title, Page(title, summary))
            if len(pages_by_title) >= MAX_TITLES:
                break
        return list(pages_by_title.values())[:MAX_TITLES]

    def _match(self, expression: str) -> list[tuple[str, str]]:
        query = "SELECT title, summary FROM pages WHERE pages MATCH ? ORDER BY bm25(pages, 10.0, 1.0), rowid LIMIT ?"
        try:
            with self._lock:
                return self._connection.execute(query, (expression, MAX_TITLES)).fetchall()
        except sqlite3.Error as error:
            raise WikipediaUnavailable(f"local index: {error}") from error

    def close(self) -> None:
        self._connection.close()


def _pages(dump: Path) -> Iterator[Page]:
    name = dump.name.removesuffix(".gz").removesuffix(".bz2")
    readers = {".xml": _xml_pages, ".jsonl": _line_pages}
    reader = readers.get(Path(name).suffix)
    if reader is None:
        raise ValueError(f"{dump}: expected .xml or .jsonl, either with .gz or .bz2")
    with _open_dump(dump) as stream:
        yield from reader(stream, dump)


def _open_dump(dump: Path) -> IO[bytes]:
    if dump.suffix == ".gz":
        return cast(IO[bytes], gzip.open(dump))
    return cast(IO[bytes], bz2.open(dump)) if dump.suffix == ".bz2" else dump.open("rb")


def _line_pages(lines: IO[bytes], dump: Path) -> Iterator[Page]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line, dump, number)
            title, text = str(row["title"]), str(row["text"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{dump}, line {number}: expected title and text: {error}") from error
        if summary := text.split("\n\n")[0].strip()[:LEAD_CHARS]:
            yield Page(title, summary)


def _xml_pages(stream: IO[bytes], dump: Path) -> Iterator[Page]:
    try:
        for _, element in ET.iterparse(stream):
            if _strip_markup(element.tag) != "page":
                continue
            fields = {_strip_markup(child.tag): child.text or "" for child in element.iter()}
            text = fields.get("text", "")
            if fields.get("ns", "0") == "0" and "redirect" not in fields and not _DISAMBIGUATION.search(text):
                title, summary = fields.get("title", ""), lead_section(text)
                if title and summary:
                    yield Page(title, summary)
            element.clear()
    except ET.ParseError as error:
        raise ValueError(f"{dump}: not a MediaWiki dump: {error}") from error


def _strip_markup(tag: str) -> str:
    return tag.rpartition("}")[2]


def lead_section(wikitext: str) -> str:
    """Plain text of a page before its first heading, at most LEAD_CHARS characters."""
    text = re.split(r"^==", _COMMENT.sub("", wikitext), maxsplit=1, flags=re.MULTILINE)[0]
    text = _TAG.sub("", _UNSEEN.sub("", text))
    text = _inside_out(_TEMPLATE, "", text)
    text = _inside_out(_LINK, _link_text, _OUTSIDE.sub(r"\1", text))
    text = _SWITCH.sub("", text).replace("'''", "").replace("''", "")
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in html.unescape(text).splitlines())
    return "\n".join(line for line in lines if line)[:LEAD_CHARS].strip()


def _inside_out(pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str], text: str) -> str:
    """The text with every match of ``pattern`` replaced by ``by``, inner matches first."""
    while (replaced := pattern.sub(by, text)) != text:
        text = replaced
    return text


def _link_text(link: re.Match[str]) -> str:
    """Displayed text of a link: its last part; empty for a picture or a category."""
    return "" if _NO_TEXT.match(link[1]) else link[1].rpartition("|")[2]
