"""Text filters for one conversation (paper A.2.1): language, runs of non-Latin letters, unwanted words.

Language and letters are tested in the instruction, the first user turn. Duplicates: see ``near_duplicates``."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from lemur_ray.agents.messages import Message

Messages = tuple[Message, ...]


def instruction(messages: Messages) -> str:
    """Text of the first user turn. Raises StopIteration if there is none."""
    return next(message.content for message in messages if message.role == "user")


def detected_language(text: str, probability: float = 0.0) -> str | None:
    """Code of a text's language (as "en") by langdetect with a fixed seed; None if it detects none. Fenced code is
    removed first. probability: below it, from 0 to 1, a language counts as not detected. Raises ModuleNotFoundError if
    langdetect is not installed."""
    try:
        import langdetect
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the language filter needs langdetect: pip install 'lemur-ray[instruct]', or pass --language '' to keep "
            "every language"
        ) from error
    langdetect.DetectorFactory.seed = 0  # without a seed results vary between calls
    try:
        best = langdetect.detect_langs(_FENCED.sub(" ", text))[0]
        return str(best.lang) if best.prob >= probability else None
    except langdetect.LangDetectException:
        return None


_FENCED = re.compile(r"```.*?(?:```|\Z)", re.S)


def character_run(text: str) -> int:
    """Number of letters in the longest run of letters outside the Latin script; 0 if there are none. Marks and joiners
    between letters (as in Hindi) neither count nor end a run. Letters without a script, such as mathematical alphabets,
    ordinals and the micro sign, do not count."""
    if text.isascii():
        return 0
    longest = run = 0
    for character in text:
        kind = _kind(character)
        run = run + 1 if kind == "foreign" else run if kind == "mark" else 0
        longest = max(longest, run)
    return longest


_NO_SCRIPT = (
    *("MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "MODIFIER LETTER", "FEMININE ORDINAL"),
    *("MASCULINE ORDINAL", "MICRO SIGN", "OHM SIGN", "KELVIN SIGN", "ANGSTROM SIGN", "INFORMATION SOURCE"),
)
"""Prefixes of the Unicode names of letters that are symbols rather than part of a script."""


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if category.startswith("M") or character in "\u200c\u200d":
        return "mark"
    if not category.startswith("L"):
        return "other"
    name = unicodedata.name(character, "")
    return "other" if "LATIN" in name or name.startswith(_NO_SCRIPT) else "foreign"


_SENTENCE = re.compile("[^{0}\n]*(?:[{0}]+|\n+|\\Z)\\s*".format(".!?\u3002\uff01\uff1f"))


def without_foreign_sentences(text: str, longest: int) -> str:
    """The text without sentences and lines with a run of at least ``longest`` non-Latin letters; "" if none is left."""
    return "".join(part for part in _SENTENCE.findall(text) if character_run(part) < longest).strip()


def with_instruction(messages: Messages, text: str) -> Messages:
    """Copy of the messages with ``text`` in place of the first user turn. Raises StopIteration if there is none."""
    at = next(i for i, message in enumerate(messages) if message.role == "user")
    return (*messages[:at], Message("user", text), *messages[at + 1 :])


def holds(messages: Messages, patterns: Iterable[re.Pattern[str]]) -> bool:
    """Whether one of the patterns matches in the text of any message."""
    return any(pattern.search(message.content) for pattern in patterns for message in messages)
