"""The cleaning of a part one document and one character at a time, as before the filters ran in C: the reference of
``corpus_rate.py``, for speed and for equal results."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.documents import Kind, content_id
from lemur_ray.corpus.sources.texts import FileRef, read_texts

MIN_CHARACTERS = 100
MAX_BYTES = 1 << 20
"""Longer files, mostly data and minified bundles, are not read at all."""

MAX_LINE = 1000
MAX_MEAN_LINE = 100
MIN_ALPHANUMERIC = 0.25
MAX_DIGITS = 0.30
_GENERATED = re.compile(
    r"@generated|\b(?:auto|automatically)[ -]?generated\b|\bgenerated (?:by|from|file|code|automatically)\b"
    r"|\bdo not (?:edit|modify)\b",
    re.IGNORECASE,
)
_HEAD_LINES = 8

MIN_WORDS = 20
"""Gopher requires 50; package descriptions are good text and shorter."""
MIN_WORD_LENGTH, MAX_WORD_LENGTH = 3, 10
MAX_SYMBOLS_PER_WORD = 0.1
MAX_BULLETS = 0.9
MAX_ELLIPSES = 0.3
MIN_ALPHABETIC_WORDS = 0.7
"""Gopher requires 0.8; documentation of software contains more non-words."""
MAX_REPEATED_LINES = 0.3
_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with", "is", "for", "a", "in"))
_MIN_STOP_WORDS = 2


def drop_rule(text: str, kind: Kind) -> str | None:
    """Name of the first quality rule that the text violates, so that it is dropped; None if it passes all."""
    if "\0" in text:
        return "nul_byte"
    if len(text.strip()) < MIN_CHARACTERS:
        return "too_short"
    if len(text) > MAX_BYTES:
        return "too_large"
    return _code_rule(text) if kind == "code" else _text_rule(text)


def _code_rule(text: str) -> str | None:
    lines = text.splitlines()
    longest = max(map(len, lines))
    if longest > MAX_LINE:
        return "long_line"
    if len(text) / len(lines) > MAX_MEAN_LINE:
        return "long_lines_on_average"
    if _GENERATED.search("\n".join(lines[:_HEAD_LINES])):
        return "generated"
    alphanumeric, digits = _shares(text)
    if alphanumeric < MIN_ALPHANUMERIC:
        return "few_alphanumeric"
    if digits > MAX_DIGITS:
        return "mostly_digits"
    return None


def _shares(text: str) -> tuple[float, float]:
    """(fraction of all characters that are letters or digits, fraction of non-blank characters that are digits)."""
    counts = Counter(text)
    alphanumeric = sum(n for c, n in counts.items() if c.isalnum())
    digits = sum(n for c, n in counts.items() if c.isdigit())
    visible = sum(n for c, n in counts.items() if not c.isspace())
    return alphanumeric / len(text), digits / max(visible, 1)


def _text_rule(text: str) -> str | None:
    words = text.split()
    if len(words) < MIN_WORDS:
        return "few_words"
    if not MIN_WORD_LENGTH <= sum(map(len, words)) / len(words) <= MAX_WORD_LENGTH:
        return "word_length"
    if (text.count("#") + text.count("...") + text.count("…")) / len(words) > MAX_SYMBOLS_PER_WORD:
        return "symbols"
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    if sum(line.startswith(("-", "*", "•", "+")) for line in lines) > MAX_BULLETS * len(lines):
        return "bullets"
    if sum(line.endswith(("...", "…")) for line in lines) > MAX_ELLIPSES * len(lines):
        return "ellipses"
    if sum(any(c.isalpha() for c in word) for word in words) < MIN_ALPHABETIC_WORDS * len(words):
        return "few_alphabetic_words"
    if len(_STOP_WORDS.intersection(word.lower() for word in words)) < _MIN_STOP_WORDS:
        return "no_stop_words"
    if len(lines) - len(set(lines)) > MAX_REPEATED_LINES * len(lines):
        return "repeated_lines"
    return None


EMAIL, ADDRESS = "<EMAIL>", "<IP_ADDRESS>"
_EMAIL_PATTERN = re.compile(r"\b[A-Za-z0-9][A-Za-z0-9._%+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}\b")
_IPV4_PATTERN = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IPV6_PATTERN = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){3,7}(?::|[0-9A-Fa-f]{1,4})[0-9A-Fa-f:]*(?![\w:.])")


def mask_personal_data(text: str) -> tuple[str, dict[str, int]]:
    """(text with e-mail and public IP addresses replaced, number of replacements by kind: email, ip_address).

    Private, loopback and documentation addresses stay: they identify no one, and code is full of them.
    """
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

    if "@" in text:
        text = _EMAIL_PATTERN.sub(email, text)
    text = _IPV4_PATTERN.sub(address, text)
    if "::" in text or text.count(":") > 3:
        text = _IPV6_PATTERN.sub(address, text)
    return text, dict(masked)


_SCHEMA = pa.schema([(name, pa.string()) for name in ("text", "path", "licence", "language", "origin")])


def clean_into(path: Path, files: Sequence[FileRef], kind: Kind) -> tuple[bytes, Counter[str], Counter[str]]:
    """Write the texts that pass to the parquet file ``path``; returns their ids, and counts of drops and of masks."""
    ids, dropped, masked, rows = bytearray(), Counter[str](), Counter[str](), []
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        for ref in files:
            for item in read_texts(ref):
                if rule := item.rule or drop_rule(item.text, kind):
                    dropped[rule] += 1
                    continue
                text, replaced = mask_personal_data(item.text)
                masked.update(replaced)
                ids += content_id(text)
                about = {"language": item.language, "licence": item.licence, "path": item.path, "origin": item.origin}
                rows.append({"text": text, **about})
                if len(rows) == 512:
                    writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
                    rows = []
        writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
    return bytes(ids), dropped, masked
