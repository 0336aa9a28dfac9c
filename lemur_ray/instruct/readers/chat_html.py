"""Conversion of HTML from chat pages to Markdown, by markdownify with rules for such pages.

A code block keeps its language, which pages give as a class or as a label above the code, and every line break; buttons
are removed; nothing is escaped, because a model reads the text literally."""

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

_TAG = r"</?(?:p|div|pre|ul|ol|h[1-6]|table|blockquote|span|code|br|strong|em|a|img)\b[^<>]*>"
_BEGINS, _ENDS = re.compile(rf"\s*(?:<!--|{_TAG})", re.I), re.compile(rf"{_TAG}\s*\Z", re.I)
_SILENT = ("script", "style", "button", "svg", "head", "noscript", "template")
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang)-([\w+#.-]+)")
_LABEL = re.compile(r"[\w+#.-]{1,20}")


def looks_like_html(text: str) -> bool:
    """Whether a text begins and ends with a tag of a chat page (blanks aside); code that contains tags does not."""
    return _BEGINS.match(text) is not None and _ENDS.search(text) is not None


def to_markdown(html: str) -> str:
    """Convert HTML to Markdown, without blank lines at either end.
    Raises RecursionError if tags are nested about 300 deep, ModuleNotFoundError if markdownify is not installed."""
    return _converter()(html)


@functools.cache
def _converter() -> Callable[[str], str]:
    try:
        import bs4
        import markdownify
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "HTML of chat pages becomes Markdown with markdownify: pip install 'lemur-ray[instruct]', or pass "
            "--sharegpt-html never to keep it as it is"
        ) from error

    class ChatPage(markdownify.MarkdownConverter):
        def convert_br(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return " " if "_inline" in parent_tags else "\n"

        def convert_pre(self, el: Any, text: str, parent_tags: set[str]) -> str:
            return code_block(el)

    page = ChatPage(
        bullets="-", heading_style=markdownify.ATX, autolinks=False, escape_asterisks=False, escape_underscores=False,
        wrap=True, wrap_width=None,
    )  # fmt: skip

    def convert(html: str) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bs4.MarkupResemblesLocatorWarning)  # a turn may consist of a URL only
            soup = bs4.BeautifulSoup(html, "html.parser")
        for silent in soup.find_all(_SILENT):
            silent.decompose()
        for line_break in soup.find_all("br"):
            after = line_break.next_sibling
            if isinstance(after, bs4.NavigableString) and line_break.find_parent("pre") is None:
                after.replace_with(after.lstrip())
        return str(page.convert_soup(soup)).strip("\n ")

    return convert


def code_block(pre: Any) -> str:
    """Markdown code block from an HTML element ``pre`` of BeautifulSoup, which is changed. The language's name is that
    of a class, else the text outside the ``code`` element, else none."""
    for line_break in pre.find_all("br"):
        line_break.replace_with("\n")
    codes = pre.find_all("code")
    text = "".join(code.get_text() for code in codes or [pre]).strip("\n")
    classes = " ".join(name for tag in (*codes, pre) for name in tag.get("class") or ())
    match = _LANGUAGE.search(classes)
    language = match[1] if match else ""
    if codes and not language:
        for code in codes:
            code.extract()
        label = pre.get_text().strip().split("\n")[0].strip()
        language = label.lower() if _LABEL.fullmatch(label) else ""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`{3,}", text)), default=0))
    return f"\n\n{fence}{language}\n{text}\n{fence}\n\n"
