"""A tokenizer of any kind, as its files declare it: text to ids and back, whole or by and by, and the bytes of tokens.

A thin layer over the ``tokenizers`` library. Text never turns into special ids, whatever it contains: specials are
placed by the callers (documents, chat template) by id; where a text may spell them, ``encode_marked`` says so. Nothing
is added to a vocabulary but what its own files name. Knows nothing of chat roles, corpora or models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from lemur_ray.text import backends, bpe_training
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.incremental_text import BytesText, IncrementalText, WindowText
from lemur_ray.text.special_tokens import (
    IM_END,
    IM_START,
    SPECIALS,
    SpecialTokens,
    is_ours,
    special_tokens,
    splits_specials,
)
from lemur_ray.text.token_pieces import TokenPieces, read_pieces
from lemur_ray.text.whole_texts import is_lossless, longest_source

__all__ = ["SPECIALS", "Tokenizer"]

_LONG = 8192
"""Characters from which a text is treated as a batch of one: only batches let go of the interpreter lock."""


class Tokenizer:
    """Text to ids and back. Safe to call from several threads."""

    def __init__(self, backend: Backend, files: Mapping[str, str] | None = None):
        """files: the small files of its folder besides ``tokenizer.json``, name -> text; they say which tokens are
        special and travel with it. Raises ValueError where they or the backend's decoder cannot be used."""
        self._backend = backend
        self.files = {name: text for name, text in (files or {}).items() if name != TOKENIZER}
        self.special: SpecialTokens = special_tokens(backend, self.files)
        self._plain = backends.plain_text_backend(backend)
        self._pieces: TokenPieces = read_pieces(backend, self._tokens)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, pattern: str = bpe_training.GENERAL) -> Tokenizer:
        """Learn merges from texts; the same texts in the same order give the same tokenizer."""
        return cls(bpe_training.train_bpe(texts, vocab_size, pattern))

    @classmethod
    def bytes_only(cls) -> Tokenizer:
        """The tokenizer without merges: one token per byte, and the specials."""
        # Tables are named by their tokenizer's file, so it is spelled as it ever was; without merges no pattern counts.
        return cls(bpe_training.train_bpe([], bpe_training.SMALLEST, bpe_training.NUMBERED))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a ``tokenizer.json`` alone. ``tokenizer_folder.load_folder`` reads the files beside it, too."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer at {path}: expected a tokenizer.json of the tokenizers library")
        return cls.from_json(path.read_bytes(), str(path))

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "the text") -> Tokenizer:
        """``load`` for the content of a file. Raises ValueError that names ``where`` the text came from."""
        return cls.from_files({TOKENIZER: text}, where)

    @classmethod
    def from_files(cls, files: Mapping[str, str | bytes], where: str = "the text") -> Tokenizer:
        """The tokenizer of a folder's files, name -> content. Raises ValueError that names ``where`` they came from."""
        texts = {name: _text_of(content, name, where) for name, content in files.items()}
        try:
            backend = backends.read_backend(texts, where)
            try:
                return cls(backend, texts)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{where}: a file beside it says something of another form than such files do "
                f"({type(error).__name__}: {error}): copy all files of the tokenizer anew from one place"
            ) from error

    def to_json(self) -> str:
        return self._backend.to_str(pretty=False)

    def to_files(self) -> dict[str, str]:
        """``tokenizer.json`` and the small files of its folder: what ``from_files`` makes the same tokenizer of."""
        return {TOKENIZER: self.to_json(), **self.files}

    def is_same(self, other: Tokenizer) -> bool:
        """Whether both have the same vocabulary, ids and merges; how their files are written does not matter."""
        return self._merges == other._merges and self._backend.get_vocab() == other._backend.get_vocab()

    def grows_to(self, other: Tokenizer) -> bool:
        """Whether the other one is this one with tokens added behind."""
        mine, theirs = self._backend.get_vocab(), other._backend.get_vocab()
        old = {token: i for token, i in theirs.items() if i < self.vocab_size}
        return self._merges == other._merges and mine == old

    @property
    def made_of(self) -> str:
        """Everything that it is read from, as one text: what is made with it may be named by that."""
        return json.dumps(self.to_files(), sort_keys=True) if self.files else self.to_json()

    def with_tokens(self, tokens: Sequence[str]) -> Tokenizer:
        """The same with these special tokens, those it lacks behind all others."""
        backend = Backend.from_str(self.to_json())
        missing = [t for t in tokens if backend.token_to_id(t) is None]
        backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in missing])
        return Tokenizer(backend, backends.with_listed(self.files, backend, missing))

    def with_files(self, files: Mapping[str, str]) -> Tokenizer:
        """The same vocabulary with these small files in place of its own."""
        return Tokenizer(Backend.from_str(self.to_json()), files)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Ids of a whole text; special tokens spelled out in it are ordinary text."""
        return _encode(self._plain, text)

    def encode_inside(self, text: str) -> list[int]:
        """Ids of a text that goes on with another: nothing is put before it, no dummy blank of SentencePiece either."""
        return _encode(self._inner, text)

    def encode_marked(self, text: str) -> list[int]:
        """Ids of a text in which special tokens may be spelled out, as tokenizers of Hugging Face read every text."""
        return _encode(self._marking, text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in self._plain.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD."""
        if not self._pieces.exact:
            return self._backend.decode(list(ids), skip_special_tokens=skip_special)
        text = BytesText(self._pieces, self.special_ids if skip_special else ())
        return b"".join(map(text.bytes_of, ids)).decode(errors="replace")

    def text_stream(self, before: Sequence[int] = ()) -> IncrementalText:
        """The text of ids that come by and by behind those ``before`` (a prompt): with these its whole is what
        ``decode`` says of all, without the text that the prompt has alone."""
        if self._pieces.exact:
            begins = all(i in self.special_ids for i in before)
            return BytesText(self._pieces, self.special_ids, begins=begins)
        return WindowText(self.decode, self.special_ids, before)

    def byte_stream(self, before: Sequence[int] = ()) -> Callable[[int], bytes]:
        """``text_stream`` by bytes: what each id adds that is asked for behind those ``before`` and asked for."""
        text = self.text_stream(before)
        return text.bytes_of if isinstance(text, BytesText) else lambda token: text.push(token).encode()

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one id stands for where something stands before it; a special token is its own spelling."""
        return self._pieces.spelled[token_id]

    def names(self, ids: Sequence[int]) -> list[str]:
        """What the vocabulary calls tokens; nothing for rows that no token belongs to."""
        return [self._tokens[i] if i < len(self._tokens) else "" for i in ids]

    def num_bytes(self, ids: Sequence[int]) -> int:
        """Bytes of the text that ids make, without special tokens and the dummy blank before it."""
        if not self._pieces.exact:
            return len(self.decode(ids).encode())
        text = BytesText(self._pieces, self.special_ids)
        return sum(len(text.bytes_of(i)) for i in ids)

    @property
    def spells_by_token(self) -> bool:
        """Whether the text of ids is their ``token_bytes`` one after another (but for how a text begins)."""
        return self._pieces.exact

    @cached_property
    def keeps_text(self) -> bool:
        """Whether tokens hold every byte of a text: nothing is normalised away, nothing becomes one unknown token."""
        return is_lossless(self._backend)

    @cached_property
    def longest_token(self) -> int:
        """Bytes that a token stands for at most, if it is no special one: where a tokenizer keeps the text, one of n
        bytes has at least n / longest_token tokens."""
        plain = [i for i in range(self.vocab_size) if i not in self.special_ids]
        return longest_source([self._pieces.spelled[i] for i in plain], [self._tokens[i] for i in plain])

    @cached_property
    def vocab_size(self) -> int:
        """Rows that a model needs: one more than the largest id."""
        return len(self._tokens)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are no text."""
        return frozenset(i for i, token in self._added.items() if token.special)

    @property
    def pad_id(self) -> int | None:
        return self.special.pad

    @property
    def bos_id(self) -> int | None:
        return self.special.bos

    @property
    def eos_id(self) -> int | None:
        return self.special.eos

    @property
    def filler_id(self) -> int:
        """What fills a row up, where nothing reads it."""
        return next((i for i in (self.special.pad, self.special.eos) if i is not None), 0)

    @cached_property
    def is_ours(self) -> bool:
        """Whether its special tokens are those of our own vocabularies."""
        return is_ours(self._backend)

    @property
    def stop_ids(self) -> frozenset[int]:
        """All tokens that end what a model says."""
        return self.special.stops

    @property
    def splits_specials(self) -> bool:
        """Whether its files say that a text has no special tokens, a rendered chat neither."""
        return splits_specials(self.files)

    @cached_property
    def im_start_id(self) -> int | None:
        return self._special_id(IM_START)

    @cached_property
    def im_end_id(self) -> int | None:
        return self._special_id(IM_END)

    def _special_id(self, token: str) -> int | None:
        token_id = self._backend.token_to_id(token)
        return token_id if token_id in self.special_ids else None

    @cached_property
    def _tokens(self) -> list[str]:
        vocab = self._backend.get_vocab(with_added_tokens=True)
        tokens = [""] * (1 + max(vocab.values(), default=-1))
        for token, i in vocab.items():
            tokens[i] = token
        return tokens

    @cached_property
    def _added(self) -> dict[int, AddedToken]:
        return self._backend.get_added_tokens_decoder()

    @cached_property
    def _merges(self) -> list[list[str]] | None:
        return json.loads(self.to_json())["model"].get("merges")

    @cached_property
    def _inner(self) -> Backend:
        return backends.inner_text_backend(self._plain)

    @cached_property
    def _marking(self) -> Backend:
        """The same, which takes special tokens for what they are: a switch of the whole object, hence another one."""
        backend = Backend.from_str(self.to_json())
        backend.encode_special_tokens = self.splits_specials
        return backend

    def __reduce__(self) -> tuple[object, tuple[dict[str, str]]]:
        return Tokenizer.from_files, (self.to_files(),)


def _text_of(content: str | bytes, name: str, where: str) -> str:
    """Raises ValueError that names the file, which lies ``where`` the tokenizer does."""
    try:
        return content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError as error:
        if name != TOKENIZER:
            raise ValueError(f"{where}: {name} beside it is no text ({error}): copy it anew") from error
        raise ValueError(
            f"{where} is not a tokenizer.json of the tokenizers library ({error}): copy it anew from where it came "
            "from, or build the corpus again"
        ) from error


def _encode(backend: Backend, text: str) -> list[int]:
    if len(text) > _LONG:
        return backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return backend.encode(text, add_special_tokens=False).ids
