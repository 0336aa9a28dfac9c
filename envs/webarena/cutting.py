"""Truncates observations to a number of tokens, counted by a tokenizer file or estimated at 3 characters each."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

MAX_TOKENS = 1920
CHARS_PER_TOKEN = 3
"""Estimated characters per token of an accessibility tree, used without a tokenizer."""
Cut = Callable[[str], str]


def cut_of(tokenizer: str, max_tokens: int = MAX_TOKENS) -> Cut:
    """A function that truncates a text after its first ``max_tokens`` tokens, counted by the ``tokenizer.json`` at this
    path; if the path is empty, after 3 characters for each. Raises ValueError for any other file."""
    if not tokenizer:
        return lambda text: text[: max_tokens * CHARS_PER_TOKEN]
    loaded = _load_tokenizer(tokenizer)

    def cut(text: str) -> str:
        ends = loaded.encode(text, add_special_tokens=False).offsets
        return text if len(ends) <= max_tokens else text[: ends[max_tokens - 1][1]]

    return cut


@cache
def _load_tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer

    if not Path(file).is_file():
        raise ValueError(f"--tokenizer {file}: not there; expected a tokenizer.json")
    try:
        return Tokenizer.from_file(file)
    except Exception as error:  # the package raises Exception itself
        raise ValueError(f"--tokenizer {file}: no tokenizer.json: {error}") from error
