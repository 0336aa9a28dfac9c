"""Training of this project's vocabularies: byte-level BPE with its special tokens, on texts cut by a word pattern."""

from collections.abc import Iterable
from typing import Literal

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from lemur_ray.text.special_tokens import SPECIALS

# What BPE may merge inside. In order: a chat header with its newline; up to eight plain words with the commas and full
# stops between them, so that merges may cross blanks ("in the", ". On the"); identifiers; single digits; other letters;
# punctuation with the newlines after it; white space. Merges across blanks shorten chat and prose; code is cut as
# byte-level BPE usually cuts it.
_HEADER = r"(?:system|user|assistant)\n"
_OTHERS = (
    r"| ?[A-Za-z_]+"
    r"|[0-9]"
    r"| ?\p{L}+"
    r"| ?[^\s\p{L}\p{N}]+\n*"
    r"|\s*\n"
    r"|\s+(?!\S)"
    r"|\s+"
)
GENERAL: Literal["general"] = "general"
NUMBERED: Literal["numbered"] = "numbered"
WORD_PATTERNS = {
    GENERAL: _HEADER + r"|(?:[,.]? ?[A-Za-z]+(?![A-Za-z_])){1,8}" + _OTHERS,
    # A lower-case noun before its number ("shelf 3", "loss 2") and that number are each by themselves, so that a thing
    # is the same token wherever it is named.
    NUMBERED: _HEADER
    + r"| ?[a-z]+(?= [0-9]{1,2}(?![0-9A-Za-z_]))"
    + r"| [0-9]{1,2}(?![0-9A-Za-z_])"
    + r"|(?:[,.]? ?[A-Za-z]+(?![A-Za-z_]| [0-9])){1,8}"
    + _OTHERS,
}
SMALLEST = len(SPECIALS) + 256
"""Minimum size of a vocabulary: the special tokens and the 256 single bytes."""


def train_bpe(texts: Iterable[str], vocab_size: int, pattern: str = GENERAL) -> Backend:
    """Train a byte-level BPE vocabulary of at most ``vocab_size`` tokens, special ones and single bytes included; the
    same texts in the same order give the same one. Raises ValueError below SMALLEST.
    pattern: key of WORD_PATTERNS; merges stay within the parts into which it cuts a text."""
    if vocab_size < SMALLEST:
        raise ValueError(f"vocab_size {vocab_size} cannot hold all bytes and the specials: use at least {SMALLEST}")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERNS[pattern]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend
