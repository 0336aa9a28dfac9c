"""HTML of chat pages into Markdown: what a person saw, as a model would write it.

Code blocks keep their language and every line break; buttons and styles of the page vanish. A small walk over the
standard library's parser; knows nothing of conversations.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

_BLOCKS = frozenset(
    ("p", "div", "section", "article", "table", "h1", "h2", "h3", "h4", "h5", "h6", "header", "footer", "figure", "dl")
)
_SILENT = frozenset(("script", "style", "button", "svg", "head", "noscript", "template"))
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
_TAG = r"</?(?:p|div|pre|ul|ol|h[1-6]|table|blockquote|span|code|br|strong|em|a|img)\b[^<>]*>"
_BEGINS, _ENDS = re.compile(rf"\s*(?:<!--|{_TAG})", re.I), re.compile(rf"{_TAG}\s*\Z", re.I)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang)-([\w+#.-]+)")


def looks_like_html(text: str) -> bool:
    """Whether a text begins and ends with a tag of a chat page; code that merely holds tags does not."""
    return _BEGINS.match(text) is not None and _ENDS.search(text) is not None


def to_markdown(html: str) -> str:
    """The text of a piece of HTML as Markdown, without blank lines at either end."""
    walk = _Walk()
    walk.feed(html)
    walk.close()
    return walk.text()


class _Walk(HTMLParser):
    """Collects Markdown while the parser walks; ``_out`` holds the pieces."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._silent = 0
        self._pre = self._in_code = False
        self._outside: list[str] = []
        self._code: list[str] = []
        self._language = ""
        self._lists: list[int] = []
        self._links: list[str] = []
        self._quote_begins: list[int] = []
        self._cells = 0

    def text(self) -> str:
        if self._pre:
            self._close_pre()
        return _tidy("".join(self._out))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in _SILENT:
            self._silent += 1
        elif self._silent:
            return
        elif self._pre:
            self._start_in_pre(tag, given)
        elif tag == "pre":
            self._open_pre(given)
        elif tag == "br":
            self._out.append("\n")
        elif tag == "hr":
            self._out.append("\n\n---\n\n")
        elif tag in ("ul", "ol"):
            self._out.append("" if self._lists else "\n\n")
            self._lists.append(0 if tag == "ul" else int(given["start"]) if given.get("start", "").isdigit() else 1)
        elif tag == "li":
            self._item()
        elif tag == "blockquote":
            self._out.append("\n\n")
            self._quote_begins.append(len(self._out))
        elif re.fullmatch("h[1-6]", tag):
            self._out.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag in _MARKS:
            self._out.append(_MARKS[tag])
        elif tag == "code":
            self._out.append("`")
        elif tag == "a":
            self._links.append(given.get("href", ""))
            self._out.append("[")
        elif tag == "img":
            self._out.append(f"![{given.get('alt', '')}]({given.get('src', '')})")
        elif tag == "tr":
            self._out.append("\n|")
            self._cells = 0
        elif tag in ("td", "th"):
            self._out.append(" ")
            self._cells += 1
        elif tag in _BLOCKS and not self._at_item():
            self._out.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif self._silent:
            return
        elif self._pre:
            if tag == "pre":
                self._close_pre()
            elif tag == "code":
                self._in_code = False
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            self._out.append("\n" if self._lists else "\n\n")
        elif tag == "blockquote" and self._quote_begins:
            begin = self._quote_begins.pop()
            inside = _tidy("".join(self._out[begin:]))
            self._out[begin:] = ["\n".join(f"> {line}".rstrip() for line in inside.split("\n")), "\n\n"]
        elif tag in _MARKS:
            self._out.append(_MARKS[tag])
        elif tag == "code":
            self._out.append("`")
        elif tag == "a" and self._links:
            self._out.append(f"]({self._links.pop()})")
        elif tag in ("td", "th"):
            self._out.append(" |")
        elif tag == "thead":
            self._out.append(f"\n|{' --- |' * self._cells}")
        elif tag in _BLOCKS:
            self._out.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._pre:
            (self._code if self._in_code else self._outside).append(data)
        elif data.strip() or (self._out and not self._out[-1].endswith(("\n", " "))):
            self._out.append(re.sub(r"[ \t\r\n]+", " ", data))

    def _open_pre(self, given: dict[str, str]) -> None:
        self._pre, self._in_code, self._outside, self._code = True, False, [], []
        found = _LANGUAGE.search(given.get("class", ""))
        self._language = found[1] if found else ""

    def _start_in_pre(self, tag: str, given: dict[str, str]) -> None:
        if tag == "code":
            self._in_code = True
            found = _LANGUAGE.search(given.get("class", ""))
            self._language = found[1] if found else self._language
        elif tag == "br":
            (self._code if self._in_code else self._outside).append("\n")

    def _close_pre(self) -> None:
        """What stands in a block beside its code is the page's name of the language."""
        code = "".join(self._code or self._outside).strip("\n")
        label = "".join(self._outside).strip().split("\n")[0].strip() if self._code else ""
        language = self._language or (label.lower() if re.fullmatch(r"[\w+#.-]{1,20}", label) else "")
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`{3,}", code)), default=0))
        self._out.append(f"\n\n{_SHIELD}{fence}{language}\n{code}\n{fence}{_SHIELD}\n\n")
        self._pre = False

    def _item(self) -> None:
        depth = max(0, len(self._lists) - 1)
        mark = "-"
        if self._lists and self._lists[-1]:
            mark = f"{self._lists[-1]}."
            self._lists[-1] += 1
        self._out.append(f"\n{_INDENT * depth}{mark} ")

    def _at_item(self) -> bool:
        """Whether nothing but the mark of a list's item stands on the line."""
        return bool(self._out) and re.search(r"\n[\ue001]*(-|\d+\.) $", self._out[-1]) is not None


_SHIELD, _INDENT = "\ue000", "\ue001"
"""Private characters that stand around code and for indents until blanks are tidied."""


def _tidy(text: str) -> str:
    """One blank line at most between blocks and no blanks at line ends; code between shields stays as it is."""
    parts = text.split(_SHIELD)
    for i in range(0, len(parts), 2):
        part = re.sub(r"[ \t]*\n[ \t]*", "\n", parts[i])
        parts[i] = re.sub(r"\n{3,}", "\n\n", part).replace(_INDENT, "   ")
    whole = "".join(parts)
    return re.sub(r"\n{3,}(?=`{3})", "\n\n", whole).strip("\n ")
