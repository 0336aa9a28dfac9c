"""A byte-level BPE tokenizer with the ChatML specials: train, load, encode, decode.

A thin layer over the ``tokenizers`` library. Text never turns into special ids, whatever it contains: specials are
placed by the callers (documents, chat template) by id. Knows nothing of chat roles, corpora or models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
IM_START, IM_END, IM_SEP, DIFF_MARKER = "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|diff_marker|>"
SPECIALS = (PAD, BOS, EOS, IM_START, IM_END, IM_SEP, DIFF_MARKER)

# What BPE may merge inside. In order: a chat header with its newline; a lower-case noun before its number ("shelf 3",
# "loss 2") and that number, each by itself, so that a thing is the same token wherever it is named; up to eight plain
# words with the commas and full stops between them, so that merges may cross blanks ("in the", ". On the");
# identifiers; single digits; other letters; punctuation with the newlines after it; white space. Merges across blanks
# shorten chat and prose; code is cut as byte-level BPE usually cuts it.
_PATTERN = (
    r"(?:system|user|assistant)\n"
    r"| ?[a-z]+(?= [0-9]{1,2}(?![0-9A-Za-z_]))"
    r"| [0-9]{1,2}(?![0-9A-Za-z_])"
    r"|(?:[,.]? ?[A-Za-z]+(?![A-Za-z_]| [0-9])){1,8}"
    r"| ?[A-Za-z_]+"
    r"|[0-9]"
    r"| ?\p{L}+"
    r"| ?[^\s\p{L}\p{N}]+\n*"
    r"|\s*\n"
    r"|\s+(?!\S)"
    r"|\s+"
)

_LONG = 8192
"""Characters, or ids, from which a text is treated as a batch of one: only batches let go of the interpreter lock."""


class Tokenizer:
    """Text to ids and back. Safe to call from several threads."""

    def __init__(self, backend: Backend):
        missing = [s for s in SPECIALS if backend.token_to_id(s) is None]
        if missing:
            raise ValueError(f"tokenizer lacks the special tokens {', '.join(missing)}: add them before training")
        backend.encode_special_tokens = True
        self._backend = backend

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """Learn merges from texts; the same texts in the same order give the same tokenizer."""
        backend = _empty_backend()
        smallest = len(SPECIALS) + len(pre_tokenizers.ByteLevel.alphabet())
        if vocab_size < smallest:
            raise ValueError(f"vocab_size {vocab_size} cannot hold all bytes and the specials: use at least {smallest}")
        backend.train_from_iterator(texts, _trainer(vocab_size))
        return cls(backend)

    @classmethod
    def bytes_only(cls) -> Tokenizer:
        """The tokenizer without merges: one token per byte, and the specials."""
        backend = _empty_backend()
        backend.train_from_iterator([], _trainer(len(SPECIALS) + len(pre_tokenizers.ByteLevel.alphabet())))
        return cls(backend)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read ``tokenizer.json``. Specials that a foreign tokenizer lacks are added at the end of its vocabulary."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no tokenizer at {path}: expected a tokenizer.json of the tokenizers library")
        return cls.from_json(path.read_bytes(), str(path))

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "the text") -> Tokenizer:
        """``load`` for the content of a file. Raises ValueError that names ``where`` the text came from."""
        try:
            backend = Backend.from_buffer(text if isinstance(text, bytes) else text.encode())
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(
                f"{where} is not a tokenizer.json of the tokenizers library ({error}): copy it anew from where it came "
                "from, or build the corpus again"
            ) from error
        return cls(_with_specials(backend))

    def to_json(self) -> str:
        return self._backend.to_str(pretty=False)

    def is_same(self, other: Tokenizer) -> bool:
        """Whether both have the same vocabulary, ids and merges; how their files are written does not matter."""
        mine, theirs = (json.loads(t.to_json())["model"] for t in (self, other))
        return self._backend.get_vocab() == other._backend.get_vocab() and mine.get("merges") == theirs.get("merges")

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens spelled out in it are ordinary text."""
        if len(text) > _LONG:
            return self.encode_batch([text])[0]
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_marked(self, text: str) -> list[int]:
        """Ids of a text in which special tokens may be spelled out, as tokenizers of Hugging Face read every text."""
        if len(text) > _LONG:
            return self._marking.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return self._marking.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD."""
        if len(ids) > _LONG:
            return self._backend.decode_batch([list(ids)], skip_special_tokens=skip_special)[0]
        return self._backend.decode(list(ids), skip_special_tokens=skip_special)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one id stands for; a special token is its own spelling."""
        return self._bytes[token_id]

    @property
    def keeps_text(self) -> bool:
        """Whether tokens hold every byte of a text: nothing is normalised away, nothing becomes one unknown token."""
        return self._backend.normalizer is None and getattr(self._backend.model, "unk_token", None) is None

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token that is no special: a text of n bytes has at least n / longest_token tokens."""
        return max(len(self._bytes[i]) for i in range(self.vocab_size) if i not in self.special_ids)

    @property
    def vocab_size(self) -> int:
        return self._backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._id(s) for s in SPECIALS)

    @cached_property
    def pad_id(self) -> int:
        return self._id(PAD)

    @cached_property
    def bos_id(self) -> int:
        return self._id(BOS)

    @cached_property
    def eos_id(self) -> int:
        return self._id(EOS)

    @cached_property
    def im_start_id(self) -> int:
        return self._id(IM_START)

    @cached_property
    def im_end_id(self) -> int:
        return self._id(IM_END)

    @cached_property
    def _marking(self) -> Backend:
        """The same, which takes special tokens for what they are: a switch of the whole object, hence another one."""
        return Backend.from_str(self.to_json())

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)

    def _id(self, token: str) -> int:
        token_id = self._backend.token_to_id(token)
        assert token_id is not None
        return token_id

    @cached_property
    def _bytes(self) -> list[bytes]:
        out = []
        for i in range(self.vocab_size):
            token = self._backend.id_to_token(i)
            if token is None:
                out.append(b"")
            elif i in self.special_ids or any(c not in _BYTE_OF for c in token):
                out.append(token.encode())
            else:
                out.append(bytes(_BYTE_OF[c] for c in token))
        return out


def _with_specials(backend: Backend) -> Backend:
    missing = [AddedToken(s, special=True, normalized=False) for s in SPECIALS if backend.token_to_id(s) is None]
    backend.add_special_tokens(missing)
    return backend


def _trainer(vocab_size: int) -> trainers.BpeTrainer:
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )


def _empty_backend() -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-in of every byte in a byte-level vocabulary (the GPT-2 table)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in visible}
    hidden = [b for b in range(256) if b not in visible]
    return table | {chr(256 + n): b for n, b in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
