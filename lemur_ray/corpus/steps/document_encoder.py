"""Encodes documents with gigatoken if installed and if its ids equal those of the tokenizers library, else with that.

Since both give the same ids, keys of outputs do not name the library. gigatoken is compared with the tokenizers library
on odd texts when an encoder is made, and on one document in 10,000; after a difference the part is encoded again."""

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lemur_ray.text.tokenizer import Tokenizer

_EVERY = 10_000
"""One document in so many is encoded by both libraries."""
_LONGEST = 1 << 16
"""Characters of the longest document that is compared; longer ones leave it to the next."""
_RENEWED = 64 << 20
"""Characters after which the fast encoder is replaced: gigatoken caches words, in up to 7 bytes per character."""
_ODD_TEXTS = (
    *("", " ", "a", " a", "  a  ", "\n", "\n\n  \n", "\t\tx", "a\r\nb", "\0", "\u2028", "\u00a0x", "\u2581"),
    *("e\u0301 \u00e9 \ufb01", "\u4f60\u597d", "\U0001f98a\U0001f3fd", "\ue000", "\ufffd", "a\u2581b"),
    *("x" * 300, " " * 300, "0123456789", "\u0663\u00b2"),
    *("don't DON'T we'll", "if(x){return 0x1F;}", "a_b-c.d", "...!!!", "#" * 70, "caf\u00e9 na\u00efve \u00df \u0130"),
)


class IdsDiffer(RuntimeError):
    """Raised if gigatoken encodes a text into other ids than the tokenizers library."""


@dataclass
class DocumentEncoder:
    """Encoder of the documents of a part, by gigatoken or by the tokenizers library; of gigatoken's results one in
    10,000 is compared."""

    tokenizer: Tokenizer
    library: str = f"tokenizers {importlib.metadata.version('tokenizers')}"
    fallback_reason: str = ""
    """Why gigatoken is not used; empty if it is, or if it was not tried."""
    fast: Callable[[str], np.ndarray] | None = field(default=None, repr=False)
    """Function from a text to its ids by gigatoken."""
    renewed: Callable[[], Callable[[str], np.ndarray]] | None = field(default=None, repr=False)
    """Function that returns a new ``fast`` with an empty cache of words."""
    _until_compared: int = 0
    _encoded: int = 0

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[int] | np.ndarray]:
        """Ids of each text, in order, without BOS or EOS; [] for no texts. Raises IdsDiffer if a compared text has
        other ids by the tokenizers library."""
        if self.fast is None:
            return self.tokenizer.encode_batch(texts)
        ids = [self.fast(text) for text in texts]
        self._encoded += sum(map(len, texts))
        if self._encoded > _RENEWED and self.renewed:
            self.fast, self._encoded = self.renewed(), 0
        for text, of_text in zip(texts, ids, strict=True):
            self._until_compared -= 1
            if self._until_compared < 0 and len(text) <= _LONGEST:
                self._until_compared = _EVERY - 1
                self.compare(text, of_text)
        return ids

    def compare(self, text: str, ids: np.ndarray) -> None:
        """Raise IdsDiffer unless ``ids`` are those of the tokenizers library for ``text``."""
        if self.tokenizer.encode(text) != ids.tolist():
            raise IdsDiffer(f"gigatoken encodes {text[:60]!r} with other ids than the tokenizers library")


def document_encoder(tokenizer: Tokenizer) -> DocumentEncoder:
    """Choose the encoder of one part of the corpus: gigatoken if it is installed and gives the same ids as the
    tokenizers library for a list of unusual texts; else that library, with the reason in ``fallback_reason``."""
    try:
        from gigatoken import Tokenizer as Gigatoken
    except ImportError:
        return DocumentEncoder(tokenizer, fallback_reason="gigatoken is not installed: pip install 'lemur-ray[corpus]'")
    try:
        plain = tokenizer.plain_json

        def renewed() -> Any:
            return Gigatoken.from_json(plain).encode

        library, fast = f"gigatoken {importlib.metadata.version('gigatoken')}", renewed()
        encoder = DocumentEncoder(tokenizer, library, fast=fast, renewed=renewed)
        names = tokenizer.names(sorted(tokenizer.special_ids))
        for text in (*_ODD_TEXTS, *names, "".join(f"a{name} {name}b" for name in names)):
            encoder.compare(text, fast(text))
    except RuntimeError as error:  # gigatoken's own, and IdsDiffer
        return DocumentEncoder(tokenizer, fallback_reason=str(error).partition("\n")[0][:200])
    return encoder
