"""Quality filters of documents by named rules, and masking of e-mail and IP addresses in a text.

Pure functions of a text and a set of thresholds. Code rules follow StarCoder (arXiv 2305.06161, section 3.1), prose
rules follow Gopher (arXiv 2112.11446, table A1), web rules are in ``cleaning.web_rules``. Each rule uses few calls
that run in C for the whole text, because a corpus has 10^11 characters."""

import dataclasses
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lemur_ray.corpus.documents import Kind

MAX_BYTES = 1 << 20
"""Longer files, mostly data and minified bundles, are not read at all."""
MAX_PIECE_CHARS = 4 << 20
"""Characters of the longest document; a longer text, of a set of filters that allows it, is cut into several."""
Rules = Literal["code", "prose", "web", "book", "none"]
_GENERATED = re.compile(
    r"@generated|\b(?:auto|automatically)[ -]?generated\b|\bgenerated (?:by|from|file|code|automatically)\b"
    r"|\bdo not (?:edit|modify)\b",
    re.IGNORECASE,
)
_HEAD_LINES = 8
_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with", "is", "for", "a", "in"))


@dataclass(frozen=True)
class FilterSet:
    """Thresholds of the quality rules for the documents of one source; a document beyond one is dropped. Shares are
    from 0 to 1, lengths in characters. They are part of the key of the source's cleaned parts."""

    base: Rules
    """Which rules apply: code, prose, web, book, or none (length alone)."""
    min_characters: int = 100
    max_characters: int = MAX_BYTES
    max_line: int = 1000
    """Characters of the longest line of code."""
    max_mean_line: float = 100
    """Mean characters of a line of code."""
    min_alphanumeric: float = 0.25
    max_digits: float = 0.30
    """Of code: share of letters and digits in the text, and share of digits in what is not blank."""
    min_words: int = 20
    """Gopher requires 50; package descriptions are good text and shorter."""
    min_word_length: float = 3
    max_word_length: float = 10
    """Mean number of characters of a word, likewise ``min_word_length``."""
    max_symbols_per_word: float = 0.1
    """Number of # and ellipses for each word."""
    max_bullets: float = 0.9
    max_ellipses: float = 0.3
    """Share of lines that end with an ellipsis, and (``max_bullets``) that begin with a bullet."""
    min_alphabetic_words: float = 0.7
    """Gopher requires 0.8; documentation of software contains more non-words."""
    max_repeated_lines: float = 0.3
    """Share of lines that repeat an earlier one."""
    min_stop_words: int = 2
    """Number of different English stop words."""
    languages: tuple[str, ...] = ()
    """ISO 639-1 codes of languages to keep, by automatic detection; empty: no detection."""
    min_language_probability: float = 0.65
    """Minimum probability of the detected language; FineWeb uses the same value."""

    def settings(self) -> dict[str, Any]:
        """The set as JSON values, for keys and manifests."""
        return {**dataclasses.asdict(self), "languages": list(self.languages)}


SETS = {
    "code": FilterSet("code"),
    "prose": FilterSet("prose"),
    "web": FilterSet("web", min_words=50),
    "book": FilterSet("book", max_characters=1 << 31),
    "none": FilterSet("none", min_characters=1, max_characters=1 << 31),
}


def filter_set(value: str | Mapping[str, Any], kind: Kind = "text") -> FilterSet:
    """Filter set from its name, or from a mapping ``{base: NAME, threshold: number, ..}``; an empty name: that for
    ``kind``. Raises ValueError on an unknown name or threshold, or a threshold that is no number."""
    changes: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"base": value}
    base = changes.pop("base", "") or ("code" if kind == "code" else "prose")
    if not isinstance(base, str) or base not in SETS:
        raise ValueError(f"filters {base!r}: expected one of {', '.join(get_args(Rules))}")
    known = {field.name for field in dataclasses.fields(FilterSet)} - {"base"}
    if unknown := sorted(map(str, changes.keys() - known)):
        raise ValueError(
            f"filters: unknown threshold {', '.join(unknown)}; expected some of {', '.join(sorted(known))}"
        )
    if "languages" in changes:
        codes = changes["languages"]
        codes = [codes] if isinstance(codes, str) else codes
        if not isinstance(codes, list | tuple) or not all(isinstance(code, str) for code in codes):
            raise ValueError(f"filters: languages {codes!r}: expected codes of languages (in YAML, write no in quotes)")
        changes["languages"] = tuple(codes)
    for name, number in changes.items():
        if name != "languages" and (type(number) not in (int, float) or number != number):  # NaN exceeds nothing
            raise ValueError(f"filters: {name} {number!r}: expected a number")
    return dataclasses.replace(SETS[base], **changes)


def pieces_of(text: str, rules: FilterSet) -> Iterator[str]:
    """Yield the text, or pieces of at most ``MAX_PIECE_CHARS`` characters if ``rules`` allow longer documents,
    cut after a paragraph, line or word."""
    begin = 0
    while len(text) - begin > MAX_PIECE_CHARS < rules.max_characters:
        half, end = begin + MAX_PIECE_CHARS // 2, begin + MAX_PIECE_CHARS
        cuts = (text.rfind(mark, half, end) + len(mark) for mark in ("\n\n", "\n", " "))
        cut = next((cut for cut in cuts if cut > half), end)
        yield text[begin:cut]
        begin = cut
    yield text[begin:] if begin else text


def drop_rule(text: str, kind: Kind, rules: FilterSet | None = None) -> str | None:
    """Name of the first quality rule that the text violates, so that it is dropped; None if it passes all.
    rules: thresholds; default: the set ``code`` or ``prose``, by ``kind``."""
    rules = rules or SETS["code" if kind == "code" else "prose"]
    if rules.base != "none" and "\0" in text:
        return "nul_byte"
    if len(text.strip()) < rules.min_characters:
        return "too_short"
    if len(text) > rules.max_characters:
        return "too_large"
    return _RULES[rules.base](text, rules) if rules.base in _RULES else None


def _code_rule(text: str, rules: FilterSet) -> str | None:
    lines = text.splitlines()
    if max(map(len, lines)) > rules.max_line:
        return "long_line"
    if len(text) / len(lines) > rules.max_mean_line:
        return "long_lines_on_average"
    if _GENERATED.search("\n".join(lines[:_HEAD_LINES])):
        return "generated"
    alphanumeric, digits = _shares(text)
    if alphanumeric < rules.min_alphanumeric:
        return "few_alphanumeric"
    if digits > rules.max_digits:
        return "mostly_digits"
    return None


def _bytes_where(test: Callable[[str], bool]) -> bytes:
    return bytes(i for i in range(128) if test(chr(i)))


_ALPHANUMERIC, _DIGITS, _SPACES = _bytes_where(str.isalnum), _bytes_where(str.isdigit), _bytes_where(str.isspace)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")


def _shares(text: str) -> tuple[float, float]:
    """(fraction of all characters that are letters or digits, fraction of non-blank characters that are digits)."""
    other = Counter("" if text.isascii() else "".join(_BEYOND_ASCII.findall(text)))
    data = text.encode("ascii", "ignore")
    counts = [
        len(data) - len(data.translate(None, members)) + sum(n for c, n in other.items() if test(c))
        for members, test in ((_ALPHANUMERIC, str.isalnum), (_DIGITS, str.isdigit), (_SPACES, str.isspace))
    ]
    alphanumeric, digits, spaces = counts
    return alphanumeric / len(text), digits / max(len(text) - spaces, 1)


def _prose_rule(text: str, rules: FilterSet) -> str | None:
    words = text.split()
    if len(words) < rules.min_words:
        return "few_words"
    if not rules.min_word_length <= len("".join(words)) / len(words) <= rules.max_word_length:
        return "word_length"
    ellipses = text.count("...") + text.count("…")
    if (text.count("#") + ellipses) / len(words) > rules.max_symbols_per_word:
        return "symbols"
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    # Lines are checked one by one only where the whole text has enough of the characters.
    most = rules.max_bullets * len(lines)
    if sum(map(text.count, _BULLETS)) > most and sum(line.startswith(_BULLETS) for line in lines) > most:
        return "bullets"
    most = rules.max_ellipses * len(lines)
    if ellipses > most and sum(line.endswith(("...", "…")) for line in lines) > most:
        return "ellipses"
    if _alphabetic_words(text) < rules.min_alphabetic_words * len(words):
        return "few_alphabetic_words"
    if not _has_stop_words(words, rules.min_stop_words):
        return "no_stop_words"
    if len(lines) - len(set(lines)) > rules.max_repeated_lines * len(lines):
        return "repeated_lines"
    return None


_BULLETS = ("-", "*", "•", "+")
_NO_LETTERS = _bytes_where(lambda character: not character.isalpha() and not character.isspace())
_BLANKS = bytes(32 if i in _SPACES else i for i in range(256))


def _alphabetic_words(text: str) -> int:
    """Number of words with a letter: those that are left when all other characters are deleted."""
    if not text.isascii():
        for character in set("".join(_BEYOND_ASCII.findall(text))):
            if not character.isalpha():
                text = text.replace(character, " " if character.isspace() else "")
    return len(text.encode().translate(_BLANKS, _NO_LETTERS).split())


def _has_stop_words(words: list[str], number: int) -> bool:
    """Whether at least ``number`` different English stop words are among the words; ends at the last one needed."""
    seen: set[str] = set()
    for word in words:
        if len(seen) >= number:
            return True
        if len(word) <= 4 and (lower := word.lower()) in _STOP_WORDS:
            seen.add(lower)
    return len(seen) >= number


def _web_rule(text: str, rules: FilterSet) -> str | None:
    from lemur_ray.corpus.cleaning.web_rules import web_rule

    return _prose_rule(text, rules) or web_rule(text)


_RULES: dict[Rules, Callable[[str, FilterSet], str | None]] = {
    "code": _code_rule,
    "prose": _prose_rule,
    "web": _web_rule,
    "book": _prose_rule,
}


EMAIL, ADDRESS = "<EMAIL>", "<IP_ADDRESS>"
_EMAIL_PATTERN = re.compile(r"\b[A-Za-z0-9][A-Za-z0-9._%+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}\b")
_IPV4_PATTERN = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IPV6_PATTERN = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){3,7}(?::|[0-9A-Fa-f]{1,4})[0-9A-Fa-f:]*(?![\w:.])")
# What every match of the pattern above contains. They begin with a literal character, which the regular expression
# engine searches ten times as fast, so only lines with such a piece are searched for the whole.
_EMAIL_PIECE = re.compile(r"@(?<=[A-Za-z0-9._%+-]@)[A-Za-z0-9-]+\.")
_IPV4_PIECE = re.compile(r"\.\d{1,3}\.\d{1,3}\.\d")
_IPV6_PIECE = re.compile(r":[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:")


def mask_personal_data(text: str) -> tuple[str, dict[str, int]]:
    """(text with e-mail and public IP addresses replaced, number of replacements by kind: email, ip_address).
    Private, loopback and documentation addresses stay: they identify no one, and code is full of them."""
    masked: Counter[str] = Counter()

    def email(match: re.Match[str]) -> str:
        masked["email"] += 1
        return EMAIL

    def address(match: re.Match[str]) -> str:
        try:
            if not ipaddress.ip_address(match[0]).is_global:
                return match[0]
        except ValueError:
            return match[0]
        masked["ip_address"] += 1
        return ADDRESS

    text = _replace(text, _EMAIL_PIECE, _EMAIL_PATTERN, email)
    text = _replace(text, _IPV4_PIECE, _IPV4_PATTERN, address)
    return _replace(text, _IPV6_PIECE, _IPV6_PATTERN, address), dict(masked)


def _replace(
    text: str, piece: re.Pattern[str], pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]
) -> str:
    """``pattern.sub(replacement, text)`` on the lines that contain ``piece``; no match reaches beyond a line."""
    out, begin = [], 0
    for match in piece.finditer(text):
        if match.start() < begin:
            continue
        first = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        out += [text[begin:first], pattern.sub(replacement, text[first:end])]
        begin = end
    return "".join([*out, text[begin:]]) if out else text
