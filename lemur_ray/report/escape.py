"""Makes untrusted text safe to display: HTML, terminal control characters, bidirectional overrides, broken Unicode.

Model replies and observations are arbitrary text and must not act on a page or on a terminal that prints them."""

import html
import re

# C0 and C1 controls without tab and newline, the characters that reorder or hide text, and lone surrogates (JSON can
# carry them, UTF-8 cannot).
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def _name(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str) -> str:
    """The text with every control or invisible character written out, for example ``\\x1b``. Safe in a terminal."""
    return _UNSEEN.sub(_name, text.replace("\r\n", "\n"))


def inline(text: object) -> str:
    """Escape a text for HTML, inside an element or a quoted attribute, and write out control characters."""
    return html.escape(printable(str(text)), quote=True)


def block(text: str, limit: int = 20_000) -> str:
    """Escape a text for an HTML element that keeps white space, with control characters marked. Beyond ``limit``
    characters it is cut, with a note on how many are missing."""
    shown = html.escape(text[:limit].replace("\r\n", "\n"), quote=True)
    marked = _UNSEEN.sub(lambda m: f"<i class=c>{_name(m)}</i>", shown)
    rest = len(text) - limit
    return marked + (f"<i class=c>… {rest:,} more characters stand in episodes.jsonl</i>" if rest > 0 else "")


def slug(text: str) -> str:
    """A file name made of ``text``: runs of characters other than ASCII letters, digits and dots become a dash;
    "unnamed" if nothing is left."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "unnamed"
