"""Encoding of rendered chats in which special tokens of the template count and those in user text do not.

Before rendering, user text is disguised: every special token spelled in it, and every part of one at its ends, is
replaced one for one by private-use characters, which templates ignore. The rendered text then contains only the
template's special tokens. A text without replaced characters is encoded as in ``transformers``. Otherwise a copy of the
tokenizer (twin), whose special tokens have private names, encodes the restored text with the same pre-processing, so
that special tokens spelled by a user are ordinary text."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from lemur_ray.text.chat_template import TemplateError
from lemur_ray.text.tokenizer import Tokenizer, encode_text

_FIRST, _LAST = 0xF0000, 0x10FFF0
"""Range of private-use characters: two planes without the last few, which templates.jinja_template uses."""
MOST_DEPTH = 128
"""Maximum nesting of lists and objects, which are walked recursively."""


class MarkedText:
    """Encoder of rendered chats for one tokenizer: the template's special tokens count, users' do not. Thread-safe."""

    def __init__(self, tokenizer_json: str, splits_specials: bool = False):
        """tokenizer_json: content of a ``tokenizer.json`` without truncation and padding. splits_specials: encode the
        template's special tokens as ordinary text, too."""
        self._json = tokenizer_json
        self._backend = Backend.from_str(tokenizer_json)
        self._backend.encode_special_tokens = splits_specials
        self._specials = {
            token.content: number
            for number, token in self._backend.get_added_tokens_decoder().items()
            if token.special and token.content and not splits_specials
        }
        whole = _any_of(set(self._specials))
        begins = {token[:n] for token in self._specials for n in range(1, len(token))}
        ends = {token[n:] for token in self._specials for n in range(1, len(token))}
        self._meant = re.compile(whole)
        self._spelled = re.compile(rf"{whole}|^\s*({_any_of(ends)})|({_any_of(begins)})(?=\s*\Z)")
        self.alphabet = sorted({character for token in self._specials for character in token})
        self._twin: _Twin | None = None

    def disguise(self, texts: Iterable[str] = (), marks: int = 0) -> Disguise:
        """The disguise of one chat: replacement characters that none of its ``texts`` contains, and ``marks`` further
        unused ones. Raises TemplateError if the texts leave too few private-use characters unused."""
        return Disguise(self, _free(texts, len(self.alphabet) + marks))

    def spelled(self, text: str, table: Mapping[int, int]) -> str:
        """Copy of the text in which special tokens, and parts of them at its ends, are translated by ``table``."""
        return self._spelled.sub(lambda match: match[0].translate(table), text)

    def least_tokens(self, text: str, disguise: Disguise, longest: int) -> int:
        """Lower bound on the tokens of a rendered text. longest: maximum bytes of text of an ordinary token."""
        parts = self._meant.split(text)
        return len(parts) - 1 + -(-len(disguise.reveal("".join(parts)).encode()) // longest)

    def encode(self, text: str, disguise: Disguise | None = None) -> Encoding:
        """Ids and character offsets of a rendered text; offsets are those of the text without disguise, which has the
        same length. disguise: that of the chat; None: nothing is replaced.
        Raises TemplateError if the tokenizer cannot distinguish spelled special tokens from real ones."""
        if disguise is None or disguise.reveal(text) == text:
            return encode_text(self._backend, text, offsets=True)
        return self.encode_by_twin(text, disguise)

    def encode_by_twin(self, text: str, disguise: Disguise) -> Encoding:
        """``encode`` with the twin tokenizer, also for a text without replaced characters. Raises TemplateError if the
        tokenizer finds special tokens inside of words or only after normalising."""
        revealed = disguise.reveal(text)
        twin = self._twin_for(revealed)
        matches = list(self._meant.finditer(text))
        bounds = [0, *(at for one in matches for at in one.span()), len(text)]
        named = [
            text[begin:end].translate(twin.names) if number % 2 else revealed[begin:end]
            for number, (begin, end) in enumerate(itertools.pairwise(bounds))
        ]
        encoding = encode_text(twin.backend, "".join(named), offsets=True)
        meant = [self._specials[one[0]] for one in matches]
        if sum(i in twin.counted for i in encoding.ids) != sum(i in twin.counted for i in meant):
            raise TemplateError(
                f"the tokenizer reads special tokens inside of words or after normalising ({revealed[:80]!r} ...): "
                "a text that only spells them cannot be distinguished"
            )
        return encoding

    def _twin_for(self, text: str) -> _Twin:
        """A twin whose private names use characters that the text does not contain; the last one if possible."""
        twin = self._twin
        if twin is None or not _private([text]).isdisjoint(twin.names.values()):
            twin = self._twin = self._twin_of(_free([text], len(self.alphabet)))
        return twin

    def _twin_of(self, free: Sequence[int]) -> _Twin:
        """Copy of the tokenizer with its special tokens renamed. free: private-use characters for their names."""
        names = {ord(character): private for character, private in zip(self.alphabet, free, strict=True)}
        known = {special: special.translate(names) for special in self._specials}
        written = json.loads(self._json)
        for token in written["added_tokens"]:
            token["content"] = known.get(token["content"], token["content"])
        model = written["model"]
        # Unknown input also gives the unknown token, so that one is not counted.
        unknown = model.get("unk_id", self._specials.get(model.get("unk_token", "")))
        if isinstance(model["vocab"], dict):
            model["vocab"] = {known.get(piece, piece): number for piece, number in model["vocab"].items()}
        else:  # a unigram model's list of pieces and scores
            model["vocab"] = [[known.get(piece, piece), score] for piece, score in model["vocab"]]
        if model.get("unk_token") in known:
            model["unk_token"] = known[model["unk_token"]]
        return _Twin(names, Backend.from_str(json.dumps(written)), frozenset(self._specials.values()) - {unknown})


@dataclass(frozen=True)
class _Twin:
    """A copy of a tokenizer whose special tokens are spelled with private-use characters (``names``)."""

    names: Mapping[int, int]
    backend: Backend
    counted: frozenset[int]
    """Ids that only special tokens can produce."""


class Disguise:
    """Replacement of the characters of special tokens in user text by private-use characters, and its inverse.
    ``marks``: further unused characters."""

    def __init__(self, marked: MarkedText, free: Sequence[int]):
        """free: unused private-use characters, first the replacements, then the marks."""
        self._marked = marked
        size = len(marked.alphabet)
        self._hide = {ord(character): free[at] for at, character in enumerate(marked.alphabet)}
        self._reveal = {private: character for character, private in self._hide.items()}
        self.marks = list(map(chr, free[size:]))

    @cached_property
    def characters(self) -> list[str]:
        """All replacement characters, without the marks."""
        return list(map(chr, self._reveal))

    def apply(self, value: Any) -> Any:
        """Copy of a JSON value in which special tokens spelled in strings have replacement characters."""
        if isinstance(value, str):
            return self._marked.spelled(value, self._hide)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(one) for one in value]
        return value

    def reveal(self, text: str) -> str:
        """The text with the original characters in place of replacement characters; inverse of ``apply``."""
        return text.translate(self._reveal)


def iter_texts(value: Any, depth: int = 0) -> Iterable[str]:
    """Yield every string (keys, too) in a JSON value. depth: that of ``value`` in the whole. Raises TemplateError if it
    nests deeper than MOST_DEPTH."""
    if depth > MOST_DEPTH:
        raise TemplateError(f"messages, tools, documents or options of a chat nest more than {MOST_DEPTH} deep")
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from iter_texts(key, depth + 1)
            yield from iter_texts(one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from iter_texts(one, depth + 1)


_OF: weakref.WeakKeyDictionary[Tokenizer, MarkedText] = weakref.WeakKeyDictionary()


def marked_text(tokenizer: Tokenizer) -> MarkedText:
    """The MarkedText of a tokenizer, made at the first call and cached."""
    marked = _OF.get(tokenizer)
    if marked is None:
        marked = _OF[tokenizer] = MarkedText(tokenizer.to_json(), tokenizer.splits_specials)
    return marked


def _any_of(parts: set[str]) -> str:
    return "|".join(map(re.escape, sorted(parts, key=len, reverse=True))) or r"(?!)"


def _free(texts: Iterable[str], size: int) -> list[int]:
    """Code points of ``size`` private-use characters that no text contains, from a random position on. Raises
    TemplateError if there are too few."""
    taken = _private(texts)
    begin = _FIRST + secrets.randbelow(_LAST - _FIRST)
    around = itertools.chain(range(begin, _LAST), range(_FIRST, begin))
    free = list(itertools.islice((at for at in around if at not in taken), size))
    if len(free) < size:
        raise TemplateError(f"the text has {len(taken)} private characters (from U+F0000): {size} are needed")
    return free


def _private(texts: Iterable[str]) -> set[int]:
    """Code points of the private-use characters (from U+F0000) in the texts."""
    private: set[int] = set()
    for text in texts:
        if not text.isascii() and max(text) >= chr(_FIRST):
            private.update(at for at in map(ord, set(text)) if at >= _FIRST)
    return private
