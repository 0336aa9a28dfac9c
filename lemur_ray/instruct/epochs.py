"""Steps and batch size of a run that consists of whole epochs over a table of conversations.

The paper's batch is 128 conversations (2.2), but rows hold several of them. So the rows per batch follow from the
table, which is padded with empty rows until ``epochs`` passes are whole batches: the run then trains on every
conversation exactly ``epochs`` times."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lemur_ray.config import Recipe

MANY_PASSES = 50
"""Passes over a table of conversations beyond which a run learns them by heart."""


@dataclass(frozen=True)
class WholeEpochs:
    """Rule for the rows of a table: called with its (packed rows, conversations), it returns the number of rows to
    which the table is padded, so that ``epochs`` passes are whole batches."""

    epochs: int
    batch_examples: int
    multiple: int
    """Divisor of the rows per batch, so that workers, devices and microbatches share them evenly."""

    def __repr__(self) -> str:
        """Text that is hashed into the name of a cached table; it must not change, so that old tables are reused."""
        return f"Passes(epochs={self.epochs}, batch_examples={self.batch_examples}, multiple={self.multiple})"

    def rows_per_step(self, rows: int, examples: int) -> int:
        """Rows per batch: the multiple of ``multiple``, at least one, closest to ``batch_examples`` conversations.
        rows, examples: packed rows and conversations of the table."""
        wanted = self.batch_examples * rows / examples
        return max(1, round(wanted / self.multiple)) * self.multiple

    def __call__(self, rows: int, examples: int) -> int:
        """Least number of rows >= ``rows`` for which ``epochs`` passes are whole batches; ``rows`` if epochs is 0.
        examples: number of conversations in the rows."""
        if not self.epochs:
            return rows
        batch = self.rows_per_step(rows, examples)
        unit = batch // math.gcd(batch, self.epochs)
        return -(-rows // unit) * unit


def whole_epochs(recipe: Recipe, batch_parts: int) -> WholeEpochs:
    """Padding rule for a recipe. batch_parts: number of equal parts of a batch on devices (``train.pod.placement``)."""
    return WholeEpochs(recipe.tuning.epochs, recipe.tuning.batch_examples, batch_parts * recipe.train.microbatches)


def with_whole_epochs(recipe: Recipe, manifest: Mapping[str, Any], batch_parts: int) -> tuple[Recipe, str]:
    """(recipe with the steps, warm-up and rows per batch for the table of ``manifest``, a line that reports them).
    A recipe without ``tuning.epochs`` is returned unchanged. batch_parts: number of equal parts of a batch on devices.
    Raises ValueError if the table was padded for another batch size, so that passes would not be whole batches."""
    if not recipe.tuning.epochs:
        rows = sum(source["rows"] for source in manifest["sources"])
        passes = recipe.train.steps * recipe.train.rows_per_step / rows
        few = (
            "; --tuning.epochs 3 --tuning.batch-examples 8 is what few conversations need"
            if passes > MANY_PASSES
            else ""
        )
        say = (
            f"{recipe.train.steps} steps of {recipe.train.rows_per_step} rows, {passes:.3g} passes over the table{few}"
        )
        return recipe, say
    whole = whole_epochs(recipe, batch_parts)
    (source,) = manifest["sources"]
    total, examples = source["rows"], source["documents"]
    filled = total - source.get("empty_rows", 0)
    batch = whole.rows_per_step(filled, examples)
    if whole.epochs * total % batch:
        raise ValueError(
            f"{whole.epochs} passes over {total} rows are no whole number of batches of {batch} rows: build the table "
            f"with the same recipe, mesh and microbatches (it would have {whole(filled, examples)} rows)"
        )
    steps = whole.epochs * total // batch
    warmup = math.ceil(recipe.tuning.warmup_fraction * steps)
    average = examples / filled * batch
    say = (
        f"{whole.epochs} passes over {examples:,} conversations in {filled:,} rows ({examples / filled:.2f} a row) "
        f"and {total - filled} empty ones: {steps:,} steps of {batch} rows, {average:.1f} conversations on average "
        f"(asked: {whole.batch_examples}), warm-up {warmup}"
    )
    return dataclasses.replace(
        recipe,
        train=dataclasses.replace(recipe.train, steps=steps, rows_per_step=batch),
        optimizer=dataclasses.replace(recipe.optimizer, warmup_steps=warmup),
    ), say
