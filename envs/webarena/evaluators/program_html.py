"""program_html: scores an episode by the content of pages, or by the results of scripts in them.

After libwebarena 0.0.4, ``HTMLContentEvaluator``. Upstream evaluates Python code of the task; here only the five helper
functions that tasks use can be called, with literal arguments, and no Python is evaluated."""

import ast
import html
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from envs.webarena.evaluators.string_match import exact_match, must_include
from envs.webarena.evaluators.url_match import OR
from lemur_ray.host.python_source import parsed

SETTLES_S = 3.0
"""Seconds to wait after loading a page, as upstream does."""
_PAGE, _LAST_URL = "__page__", "__last_url__"


class LastPage(Protocol):
    """The tab in which an episode ended, as evaluators use it."""

    def url(self) -> str: ...

    def goto(self, url: str) -> None:
        """Load a URL and wait until the page has settled."""
        ...

    def content(self) -> str:
        """Return the current HTML source of the page."""
        ...

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page. Raises ScriptFailed."""
        ...


class ScriptFailed(Exception):
    """Raised if a script in the page throws or takes too long, or if the page was not reached."""


Lookup = Callable[..., str]
"""A helper that looks something up on a site. Arguments: the last page, then the literals of the call."""


def program_html(targets: list[Mapping[str, Any]], page: LastPage, helpers: Mapping[str, Lookup]) -> float:
    """Return 1 if every target matches, else 0. Raises ValueError for an unknown locator, helper or content rule.
    Targets on the page where the episode ended are checked before others, which upstream loads in another tab."""
    score, ended_at = 1.0, page.url()
    for target in sorted(targets, key=lambda one: one["url"] != "last"):
        _navigate(target["url"], page, helpers, ended_at)
        content = html.unescape(_selected(target, page, helpers))
        score *= _holds(target["required_contents"], content)
    return score


def _navigate(url: str, page: LastPage, helpers: Mapping[str, Lookup], ended_at: str) -> None:
    if url.startswith("func:"):
        url = call_helper(url.removeprefix("func:"), page, helpers, ended_at)
    if url != "last":
        page.goto(url)


def _selected(target: Mapping[str, Any], page: LastPage, helpers: Mapping[str, Lookup]) -> str:
    locator = target["locator"]
    if not locator.strip():
        return page.content()
    if is_script(locator):
        try:
            for script in target.get("prep_actions", ()):
                page.evaluate(script)
        except ScriptFailed:
            pass
        try:
            return str(page.evaluate(locator))
        except ScriptFailed:
            return ""
    if locator.startswith("func:"):
        return call_helper(locator.removeprefix("func:"), page, helpers)
    raise ValueError(f"unknown locator {locator[:80]!r}: expected none, a script on document, or func:")


def is_script(locator: str) -> bool:
    """Whether a locator is evaluated as JavaScript in the page."""
    return locator.startswith(("document.", "[...document."))


def _holds(required: Mapping[str, Any], content: str) -> bool:
    if "exact_match" in required:
        return exact_match(required["exact_match"], content)
    if "must_include" in required:
        return all(any(must_include(one, content) for one in wanted.split(OR)) for wanted in required["must_include"])
    raise ValueError(f"unknown required contents {sorted(required)}: expected {' or '.join(CONTENTS)}")


CONTENTS = ("exact_match", "must_include")
HELPERS: Mapping[str, int] = {
    "reddit_get_post_url": 1,
    "gitlab_get_project_memeber_role": 1,
    "shopping_get_latest_order_url": 0,
    "shopping_get_sku_latest_review_rating": 1,
    "shopping_get_sku_latest_review_author": 1,
}
"""Allowed helpers with their number of text arguments. The misspelled name is upstream's."""


def read_call(call: str) -> tuple[str, list[str]]:
    """Parse a helper call ``name('text', ...)`` into its name and texts; ``__page__`` is left out, since every helper
    gets the page. Raises ValueError for any other name or argument."""
    expected = f"expected a call of {', '.join(sorted(HELPERS))} with texts"
    refused = ValueError(f"unknown helper {call[:80]!r}: {expected}")
    try:
        node = parsed(call.strip(), "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refused from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in HELPERS:
        raise refused
    given: list[str] = []
    for argument in node.args:
        if isinstance(argument, ast.Name) and argument.id == _PAGE:
            continue
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise refused
        given.append(argument.value)
    if node.keywords or len(given) != HELPERS[node.func.id]:
        raise ValueError(f"helper {call[:80]!r}: expected {HELPERS[node.func.id]} text(s) and nothing else")
    return node.func.id, given


def call_helper(call: str, page: LastPage, helpers: Mapping[str, Lookup], ended_at: str = "") -> str:
    """Return the result of a helper call, in which '__last_url__' stands for the URL where the episode ended.
    ``ended_at``: that URL. Raises ValueError as ``read_call`` does, and for a helper that is not available."""
    name, given = read_call(call)
    if name not in helpers:
        raise ValueError(f"helper {call[:80]!r}: expected a call of {', '.join(sorted(helpers))}")
    return helpers[name](page, *((ended_at or page.url()) if one == _LAST_URL else one for one in given))


def post_url(page: LastPage, url: str) -> str:
    """Return the URL of the forum post to which the page at ``url`` belongs. Other URLs are returned unchanged."""
    parts = urlsplit(url)
    steps = parts.path.split("/")
    if len(steps) < 4 or steps[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{steps[2]}/{steps[3]}/"


def member_role(page: LastPage, account: str) -> str:
    """Return a member's role on GitLab's members page, which must be open; empty if it lists no such account."""
    script = f"""(() => {{
        const names = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
        const place = names.findIndex(one => one.outerText === "@" + {_quoted(account)});
        return document.querySelectorAll("td.col-max-role span")[place].outerText;
    }})()"""
    try:
        return str(page.evaluate(script))
    except ScriptFailed:
        return ""


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" if not c.isalnum() or not c.isascii() else c for c in text) + '"'
