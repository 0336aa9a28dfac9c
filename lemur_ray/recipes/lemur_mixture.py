"""Table 8 of the Lemur paper (appendix A.1.1): the mixture of the 90B tokens, as printed.

The printed weights sum to 99.90 (code 90.80, although the table says 90.9) and the printed effective tokens to
89.89B, so weights are normalised by their own sum wherever they are used. Epochs above 1 mean several differently
shuffled passes; epochs below 1 mean a fixed subset; none is printed for text."""

from dataclasses import dataclass
from typing import Literal

from lemur_ray.config import SourceConfig


@dataclass(frozen=True)
class MixtureRow:
    """One printed row of table 8: a source of the mixture, its kind, its share of the tokens in percent, the tokens
    drawn from it, and the passes over it (None: not printed)."""

    kind: Literal["code", "text"]
    source: str
    weight_percent: float
    effective_tokens_billion: float
    epochs: float | None

    @property
    def name(self) -> str:
        """The source's name in a corpus manifest: lower case, with _ for blanks."""
        return self.source.lower().replace(" ", "_")


TABLE_8 = (
    MixtureRow("code", "Python", 72.73, 65.46, 2.98),
    MixtureRow("code", "SQL", 5.15, 4.63, 0.69),
    MixtureRow("code", "Java", 1.82, 1.64, 0.06),
    MixtureRow("code", "Shell", 1.82, 1.64, 1.26),
    MixtureRow("code", "Notebook", 1.71, 1.54, 0.82),
    MixtureRow("code", "JavaScript", 1.69, 1.52, 0.06),
    MixtureRow("code", "C", 1.61, 1.44, 0.06),
    MixtureRow("code", "PHP", 1.33, 1.19, 0.06),
    MixtureRow("code", "CPP", 1.21, 1.09, 0.06),
    MixtureRow("code", "Others", 1.73, 1.55, 0.06),
    MixtureRow("text", "RefinedWeb", 6.82, 6.14, None),
    MixtureRow("text", "Wikipedia", 0.64, 0.57, None),
    MixtureRow("text", "Books", 0.41, 0.37, None),
    MixtureRow("text", "ArXiv", 0.41, 0.37, None),
    MixtureRow("text", "StackExchange", 0.41, 0.37, None),
    MixtureRow("text", "DM Mathematics", 0.41, 0.37, None),
)


def table8_sources() -> tuple[SourceConfig, ...]:
    """The sources of table 8 with their weights and epochs, as the mixture of a recipe."""
    return tuple(SourceConfig(row.name, row.kind, row.weight_percent, row.epochs) for row in TABLE_8)
