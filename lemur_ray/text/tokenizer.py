"""Tokenizer: text to token ids and back, streaming decoding, and the bytes of tokens.

A thin layer over the ``tokenizers`` library. Text is never encoded as special ids: callers (documents, chat template)
insert them by id. ``encode_marked`` is the exception."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken, Encoding
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
"""Characters from which a text is encoded as a batch of one, because only batches release the interpreter lock."""


class Tokenizer:
    """Converter between text and token ids, with the special tokens and config files of a vocabulary. Thread-safe."""

    def __init__(self, backend: Backend, files: Mapping[str, str] | None = None):
        """files: texts of the config files of its folder by name; they define special tokens and are saved with it.
        Raises ValueError if they or the backend's decoder are unusable."""
        self._backend = backend
        self.files = {name: text for name, text in (files or {}).items() if name != TOKENIZER}
        self.special: SpecialTokens = special_tokens(backend, self.files)
        self._plain = backends.plain_text_backend(backend)
        self._pieces: TokenPieces = read_pieces(backend, self._tokens)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, pattern: str = bpe_training.GENERAL) -> Tokenizer:
        """Train a byte-level BPE tokenizer; deterministic in texts and their order. vocab_size: maximum, special tokens
        included; pattern: name of the word pattern. Raises ValueError for too small a vocabulary."""
        return cls(bpe_training.train_bpe(texts, vocab_size, pattern))

    @classmethod
    def bytes_only(cls) -> Tokenizer:
        """A tokenizer without merges: one token per byte, and the special tokens of this project."""
        # The file's hash is part of names of tables, so it must not change. Without merges the pattern has no effect.
        return cls(bpe_training.train_bpe([], bpe_training.SMALLEST, bpe_training.NUMBERED))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a ``tokenizer.json`` without config files. Raises FileNotFoundError, ValueError if it is invalid."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer at {path}: expected a tokenizer.json of the tokenizers library")
        return cls.from_json(path.read_bytes(), str(path))

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "the text") -> Tokenizer:
        """Tokenizer from the content of a ``tokenizer.json``. where: its origin, for messages. Raises ValueError."""
        return cls.from_files({TOKENIZER: text}, where)

    @classmethod
    def from_files(cls, files: Mapping[str, str | bytes], where: str = "the text") -> Tokenizer:
        """Tokenizer from the contents of a folder's files by name, ``tokenizer.json`` among them. where: their origin,
        for messages. Raises ValueError if they are invalid."""
        texts = {name: _text_of(content, name, where) for name, content in files.items()}
        try:
            backend = backends.read_backend(texts, where)
            try:
                return cls(backend, texts)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{where}: a config file next to it does not have the form of such files "
                f"({type(error).__name__}: {error}): copy all files of the tokenizer anew from one place"
            ) from error

    def to_json(self) -> str:
        return self._backend.to_str(pretty=False)

    def to_files(self) -> dict[str, str]:
        """Texts of ``tokenizer.json`` and config files by name, from which ``from_files`` restores the tokenizer."""
        return {TOKENIZER: self.to_json(), **self.files}

    def is_same(self, other: Tokenizer) -> bool:
        """Whether both have the same vocabulary, ids and merges, regardless of the format of their files."""
        return self._merges == other._merges and self._backend.get_vocab() == other._backend.get_vocab()

    def grows_to(self, other: Tokenizer) -> bool:
        """Whether ``other`` is this tokenizer, or this tokenizer with tokens appended (same merges and ids)."""
        mine, theirs = self._backend.get_vocab(), other._backend.get_vocab()
        old = {token: i for token, i in theirs.items() if i < self.vocab_size}
        return self._merges == other._merges and mine == old

    @cached_property
    def plain_json(self) -> str:
        """Content of a ``tokenizer.json`` without special tokens, with which other libraries encode as ``encode``."""
        raw = json.loads(self._plain.to_str())
        raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["special"]]
        raw["post_processor"] = None
        return json.dumps(raw, ensure_ascii=False)

    @property
    def made_of(self) -> str:
        """Content of all files in one string, for hashes that identify data tokenised with this tokenizer."""
        return json.dumps(self.to_files(), sort_keys=True) if self.files else self.to_json()

    def with_tokens(self, tokens: Sequence[str]) -> Tokenizer:
        """Copy of this tokenizer with ``tokens`` as special tokens; those that it lacks are appended."""
        backend = Backend.from_str(self.to_json())
        missing = [t for t in tokens if backend.token_to_id(t) is None]
        backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in missing])
        return Tokenizer(backend, backends.with_listed(self.files, backend, missing))

    def with_files(self, files: Mapping[str, str]) -> Tokenizer:
        """Copy of this tokenizer with ``files`` as its config files."""
        return Tokenizer(Backend.from_str(self.to_json()), files)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Ids of a whole text, without BOS or EOS; special tokens spelled in it are encoded as ordinary text."""
        return encode_text(self._plain, text).ids

    def encode_inside(self, text: str) -> list[int]:
        """Ids of a text that continues another: no prefix is added, such as the blank that SentencePiece adds."""
        return encode_text(self._inner, text).ids

    def encode_marked(self, text: str) -> list[int]:
        """Ids of a text in which spelled special tokens become their ids, as Hugging Face tokenizers do."""
        return encode_text(self._marking, text).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in self._plain.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD, unknown ids nothing. skip_special: leave out special
        tokens, which else appear by name."""
        if not self._pieces.exact:
            return self._backend.decode(list(ids), skip_special_tokens=skip_special)
        text = BytesText(self._pieces, self.special_ids if skip_special else ())
        return b"".join(map(text.bytes_of, ids)).decode(errors="replace")

    def text_stream(self, before: Sequence[int] = ()) -> IncrementalText:
        """Streaming decoder of ids that follow those in ``before`` (a prompt). Its parts join to the text of all
        ids without that of ``before``."""
        if self._pieces.exact:
            begins = all(i in self.special_ids for i in before)
            return BytesText(self._pieces, self.special_ids, begins=begins)
        return WindowText(self.decode, self.special_ids, before)

    def byte_stream(self, before: Sequence[int] = ()) -> Callable[[int], bytes]:
        """Function to call with each next id after those in ``before``; it returns the bytes that the id adds."""
        text = self.text_stream(before)
        return text.bytes_of if isinstance(text, BytesText) else lambda token: text.push(token).encode()

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one id in the middle of a text; for a special token those of its name. Raises IndexError for an id
        outside the vocabulary."""
        return self._pieces.spelled[token_id]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Spelling of each id's token in the vocabulary, perhaps with marks for blanks; "" for unused ids."""
        return [self._tokens[i] if i < len(self._tokens) else "" for i in ids]

    def num_bytes(self, ids: Sequence[int]) -> int:
        """Number of bytes of the text of ids, without special tokens."""
        if not self._pieces.exact:
            return len(self.decode(ids).encode())
        text = BytesText(self._pieces, self.special_ids)
        return sum(len(text.bytes_of(i)) for i in ids)

    @property
    def spells_by_token(self) -> bool:
        """Whether the text of ids is the concatenation of their ``token_bytes``, except at the start of a text."""
        return self._pieces.exact

    @cached_property
    def keeps_text(self) -> bool:
        """Whether tokens represent every byte of a text: no lossy normalisation, no unknown tokens."""
        return is_lossless(self._backend)

    @cached_property
    def longest_token(self) -> int:
        """Maximum bytes of text per ordinary token. If ``keeps_text``, n bytes of text have at least
        n / longest_token tokens."""
        plain = [i for i in range(self.vocab_size) if i not in self.special_ids]
        return longest_source([self._pieces.spelled[i] for i in plain], [self._tokens[i] for i in plain])

    @cached_property
    def vocab_size(self) -> int:
        """Number of embedding rows that a model needs: the largest id plus one."""
        return len(self._tokens)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of special tokens, which have no text."""
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
        """Id to pad rows with: that of PAD, else of EOS, else 0."""
        return next((i for i in (self.special.pad, self.special.eos) if i is not None), 0)

    @cached_property
    def is_ours(self) -> bool:
        """Whether the vocabulary has all special tokens of this project."""
        return is_ours(self._backend)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids of all tokens that end a reply."""
        return self.special.stops

    @property
    def splits_specials(self) -> bool:
        """Whether special tokens are ordinary text, also in a rendered chat (config's ``split_special_tokens``)."""
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
        """Copy of the backend that encodes special tokens spelled in text as their ids."""
        backend = Backend.from_str(self.to_json())
        backend.encode_special_tokens = self.splits_specials
        return backend

    def __reduce__(self) -> tuple[object, tuple[dict[str, str]]]:
        return Tokenizer.from_files, (self.to_files(),)


def _text_of(content: str | bytes, name: str, where: str) -> str:
    """Text of the file ``name`` of a tokenizer. Raises ValueError naming its origin ``where`` if it is not UTF-8."""
    try:
        return content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError as error:
        if name != TOKENIZER:
            raise ValueError(f"{where}: {name} next to it is not text ({error}): copy it anew") from error
        raise ValueError(
            f"{where} is not a tokenizer.json of the tokenizers library ({error}): copy it anew from where it came "
            "from, or build the corpus again"
        ) from error


def encode_text(backend: Backend, text: str, *, offsets: bool = False) -> Encoding:
    """Encoding of a text by a backend, without the tokens that its post-processor would add. offsets: whether the
    caller needs character offsets."""
    if len(text) <= _LONG:
        return backend.encode(text, add_special_tokens=False)
    batch = backend.encode_batch if offsets else backend.encode_batch_fast
    return batch([text], add_special_tokens=False)[0]
