"""Data options: the mixture of sources, row length and order, and the text form of a source."""

from dataclasses import dataclass
from typing import Literal

from lemur_ray.config.ranges import COUNT, FROM_ZERO, SEED, check_ranges


@dataclass(frozen=True)
class SourceConfig:
    """One source of a training mixture. On a command line: NAME:KIND:WEIGHT or NAME:KIND:WEIGHT:EPOCHS."""

    name: str = ""
    """Name of the source in the corpus manifest."""
    kind: Literal["code", "text", "chat"] = "text"
    """Its side of the code : text ratio."""
    weight: float = 1.0
    """Share of the rows; weights are normalised by their own sum."""
    epochs: float | None = None
    """Passes over the rows used. None: as many as the run needs, at most one where unstated sources run out."""

    def __post_init__(self) -> None:
        check_ranges(self, weight=FROM_ZERO, **({} if self.epochs is None else {"epochs": FROM_ZERO}))


@dataclass(frozen=True)
class DataConfig:
    """Which rows a run reads, and in which order."""

    sources: tuple[SourceConfig, ...] = ()
    """The mixture, for example python:code:72.73:2.98. Empty: every source of the corpus, each kind split by tokens."""
    code_to_text: float = 10.0
    """Rows of code per row of text where sources is empty (paper A.1.2: 10)."""
    seq_len: int = 1024
    """Tokens of one packed row."""
    seed: int = 0
    """Seed of the order of rows."""
    mask_documents: bool = True
    """Attention stays inside a document. False: packed documents attend to each other, as in the paper's base code."""
    max_documents: int = 64
    """Maximum documents in a packed row on GPU, padding counted as one; a run refuses a corpus with more. Attention's
    statistics take 4 bytes for each token and head of a row, times this number."""

    def __post_init__(self) -> None:
        check_ranges(self, code_to_text=FROM_ZERO, seq_len=COUNT, seed=SEED, max_documents=COUNT)


def parse_source(text: str) -> SourceConfig:
    """Parse ``NAME:KIND:WEIGHT[:EPOCHS]``. Raises ValueError for any other text."""
    parts = text.split(":")
    if len(parts) not in (3, 4) or parts[1] not in ("code", "text", "chat"):
        raise ValueError(f"source {text!r}: expected NAME:KIND:WEIGHT[:EPOCHS] with KIND code, text or chat")
    epochs = float(parts[3]) if len(parts) == 4 else None
    return SourceConfig(parts[0], parts[1], float(parts[2]), epochs)  # type: ignore[arg-type]


def format_source(source: SourceConfig) -> str:
    """Text form NAME:KIND:WEIGHT[:EPOCHS] of a source, which `parse_source` reads."""
    text = f"{source.name}:{source.kind}:{source.weight!r}"
    return text if source.epochs is None else f"{text}:{source.epochs!r}"
