"""Held-out loss by kind and by source, in nats per token and bits per byte, always on the same rows.

Evaluation changes neither parameters nor files. Knows the layout of a corpus (``heldout``) and the model, not Ray."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import Recipe
from lemur_ray.corpus.bucket_rows import open_rows
from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.model.lora import adapted
from lemur_ray.model.sharding import batch_sharding, replicated
from lemur_ray.plan.mixture import largest_remainder
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.train.step import execution, token_losses

BY_KIND, BY_SOURCE = "heldout/", "heldout_source/"
"""Prefixes of metric names, followed by the kind or source, then loss or bits_per_byte."""


@dataclass(frozen=True)
class HeldOut:
    """The rows of an evaluation, of all sources together."""

    rows: dict[str, np.ndarray]
    """Arrays of PackedRow, padded with rows of weight 0 to whole batches."""
    weights: np.ndarray
    """(rows,) float64: sum of loss weights."""
    num_bytes: np.ndarray
    """(rows,) float64: bytes of text of the predicted tokens."""
    groups: dict[str, np.ndarray]
    """Metric name without its last part -> (rows,) bool mask of its rows."""


class Evaluator:
    """Evaluates parameters on the held-out rows of a corpus. Reads them at the first evaluation; ``due`` is always
    False if the corpus has none, or with ``eval_rows`` 0."""

    def __init__(self, recipe: Recipe, mesh: jax.sharding.Mesh, corpus: str, base: Any = None) -> None:
        """corpus: path or URI. base: frozen base parameters if adapters are evaluated, else None."""
        self._base = base
        self.recipe, self.mesh, self._corpus = recipe, mesh, corpus
        self._sets = read_manifest(corpus).get("heldout", []) if recipe.train.eval_rows > 0 else []
        self._batch = int(mesh.shape["dcn"] * mesh.shape["fsdp"])
        self._held_out: HeldOut | None = None
        self._loss = jax.jit(self._row_losses, out_shardings=replicated(mesh))

    def due(self, step: int) -> bool:
        """Whether to evaluate after this step: every ``eval_every_steps`` steps (0: never) and after the last one;
        never without held-out rows."""
        every = self.recipe.train.eval_every_steps
        return bool(self._sets) and (step == self.recipe.train.steps or (every > 0 and step % every == 0))

    def __call__(self, params: Any) -> dict[str, float | None]:
        """Evaluate parameters: by metric name ``heldout/<kind>/loss`` (nats per token) and
        ``heldout/<kind>/bits_per_byte``, and the same as ``heldout_source/<source>/..``. Values that are not finite are
        None."""
        params = params if self._base is None else adapted(self._base, params, self.recipe.lora)
        if self._held_out is None:
            self._held_out = read_rows(self._corpus, self._sets, self.recipe.train.eval_rows, self._batch)
        held_out = self._held_out
        losses = []
        for first in range(0, len(held_out.weights), self._batch):
            part = {name: array[first : first + self._batch] for name, array in held_out.rows.items()}
            losses.append(np.asarray(self._loss(params, self._place(part)), np.float64))
        return measured(held_out, np.concatenate(losses))

    def _row_losses(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Weighted sum of the losses of each row, (B,). Documents are always masked."""
        masked = replace(self.recipe, data=replace(self.recipe.data, mask_documents=True))
        how = execution(masked, self.mesh)
        how = how._replace(forward=replace(how.forward, remat="none"), unroll=False)
        return jnp.sum(token_losses(params, batch, masked, how) * batch["loss_weights"], axis=1)

    def _place(self, rows: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        sharding = batch_sharding(self.mesh)
        return {name: jax.make_array_from_callback(a.shape, sharding, a.__getitem__) for name, a in rows.items()}


def measured(held_out: HeldOut, losses: np.ndarray) -> dict[str, float | None]:
    """``<group>/loss`` (nats per token) and ``<group>/bits_per_byte`` of every group; None if not finite or without a
    trained token. losses: (rows,) float64, weighted sum of the losses of each row."""
    out: dict[str, float | None] = {}
    for name, of_group in held_out.groups.items():
        total, weight = float(losses[of_group].sum()), float(held_out.weights[of_group].sum())
        num_bytes = float(held_out.num_bytes[of_group].sum())
        known = math.isfinite(total)
        out[f"{name}/loss"] = total / weight if known and weight else None
        out[f"{name}/bits_per_byte"] = total / math.log(2) / num_bytes if known and num_bytes else None
    return out


def read_rows(corpus: str, sets: Sequence[Mapping[str, Any]], rows_per_kind: int, batch: int) -> HeldOut:
    """Read the first rows of every held-out set: ``rows_per_kind`` for each kind, divided among its sets by size, at
    least one per set. sets: entries of ``heldout`` in the manifest. Pads the rows to a multiple of ``batch``. Sets
    without a ``source`` (older corpora) count by kind only. corpus: folder or URL."""
    tokenizer = tokenizer_in(corpus)
    all_ids = range(tokenizer.vocab_size)
    sizes = np.array([0 if i in tokenizer.special_ids else len(tokenizer.token_bytes(i)) for i in all_ids])
    first_sizes = np.array([tokenizer.num_bytes([i]) for i in all_ids])  # without a dummy blank at the start
    parts, labels = [], []
    for kind in sorted({entry["kind"] for entry in sets}):
        of_kind = [entry for entry in sets if entry["kind"] == kind]
        readers = [open_rows(corpus, entry["name"]) for entry in of_kind]
        there = np.array([len(reader) for reader in readers])
        shares = largest_remainder(min(rows_per_kind, int(there.sum())), there / there.sum())
        for entry, reader, wanted in zip(of_kind, readers, np.maximum(shares, 1).tolist(), strict=True):
            parts.append(reader.read(np.arange(wanted)).as_dict())
            labels += [(kind, entry.get("source"))] * wanted
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows = {name: np.concatenate([array, *[array[-1:]] * (-len(array) % batch)]) for name, array in rows.items()}
    rows["loss_weights"][len(labels) :] = 0.0
    labels += [("", None)] * (len(rows["tokens"]) - len(labels))
    trained = rows["loss_weights"] > 0
    # Without a BOS a document's first token is never predicted.
    begins = rows["tokens"] == (-1 if tokenizer.bos_id is None else tokenizer.bos_id)
    read = np.where(begins, first_sizes[rows["targets"]], sizes[rows["targets"]])
    groups = {
        f"{BY_KIND}{kind}": np.array([k == kind for k, _ in labels]) for kind in sorted({k for k, _ in labels} - {""})
    }
    for source in sorted({source for _, source in labels if source is not None}):
        groups[f"{BY_SOURCE}{source}"] = np.array([s == source for _, s in labels])
    return HeldOut(
        rows,
        rows["loss_weights"].sum(axis=1, dtype=np.float64),
        np.where(trained, read, 0).sum(axis=1, dtype=np.float64),
        groups,
    )
