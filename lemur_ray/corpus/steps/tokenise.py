"""Encode documents as token ids, and train a tokenizer on a sample of texts."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from lemur_ray.corpus.steps.document_encoder import DocumentEncoder
from lemur_ray.text.bpe_training import GENERAL
from lemur_ray.text.tokenizer import Tokenizer


def tokenise(
    texts: Sequence[str], tokenizer: Tokenizer, dtype: np.dtype, encoder: DocumentEncoder | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(flat array of ``dtype`` with the ids of all documents, length of each as int64); each is BOS, text, EOS.
    BOS or EOS is omitted if the tokenizer has none. encoder: default the tokenizers library. Raises IdsDiffer if the
    faster library gigatoken encodes a text otherwise."""
    before, after = (np.array([i] * (i is not None), dtype) for i in (tokenizer.bos_id, tokenizer.eos_id))
    pieces: list[np.ndarray] = [np.zeros(0, dtype)]
    lengths = np.zeros(len(texts), np.int64)
    for number, ids in enumerate((encoder or DocumentEncoder(tokenizer)).encode(texts)):
        pieces += [before, np.asarray(ids, dtype), after]
        lengths[number] = len(before) + len(ids) + len(after)
    return np.concatenate(pieces), lengths


def repeat_to(texts: Sequence[str], num_bytes: float) -> list[str]:
    """The texts in order, repeated until they have ``num_bytes`` bytes of UTF-8; none is cut. [] if all are empty."""
    out: list[str] = []
    total = 0
    for text in itertools.cycle(texts) if any(texts) else ():
        if total >= num_bytes:
            break
        out.append(text)
        total += len(text.encode())
    return out


def train_tokenizer(
    texts: Iterable[str], extra: Sequence[str], extra_share: float, vocab_size: int, pattern: str = GENERAL
) -> Tokenizer:
    """Train a tokenizer on corpus texts and on extra texts, which are repeated or cut off to be ``extra_share`` (below
    1) of all bytes. vocab_size: with special tokens. pattern: name of the word pattern within which tokens merge
    (``text.bpe_training``)."""
    sample = list(texts)
    if extra and extra_share > 0:
        corpus_bytes = sum(len(text.encode()) for text in sample)
        sample += repeat_to(extra, corpus_bytes * extra_share / (1 - extra_share))
    return Tokenizer.train(sample, vocab_size, pattern)
