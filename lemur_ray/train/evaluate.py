"""Held-out loss by kind: nats per token and bits per byte, on the same few rows every time.

Knows the corpus layout (``heldout`` row sets of the manifest) and the model's loss; nothing of training or Ray.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import Recipe
from lemur_ray.corpus.manifest import read_manifest, row_folder
from lemur_ray.corpus.rows import RowReader
from lemur_ray.model.llama import hidden_states, output_head
from lemur_ray.model.loss import cross_entropy
from lemur_ray.model.sharding import batch_sharding, replicated
from lemur_ray.text.tokenizer import Tokenizer


class Evaluator:
    """Held-out rows of a corpus, and the loss on them. Does nothing where the corpus holds none."""

    def __init__(self, recipe: Recipe, mesh: jax.sharding.Mesh, corpus: str) -> None:
        self.recipe, self.mesh, self._corpus = recipe, mesh, corpus
        manifest = read_manifest(corpus)
        self._sets = manifest.get("heldout", []) if recipe.train.eval_rows > 0 else []
        self._batch = int(mesh.shape["dcn"] * mesh.shape["fsdp"])
        self._rows: dict[str, tuple[dict[str, np.ndarray], float]] = {}
        self._loss = jax.jit(self._total_loss, out_shardings=replicated(mesh))

    def due(self, step: int) -> bool:
        """Whether the evaluation belongs after this step: every ``eval_every_steps`` and after the last."""
        every = self.recipe.train.eval_every_steps
        return bool(self._sets) and (step == self.recipe.train.steps or (every > 0 and step % every == 0))

    def __call__(self, params: Any) -> dict[str, float | None]:
        """``heldout/<kind>/loss`` (nats per token) and ``heldout/<kind>/bits_per_byte`` of these parameters."""
        self._read()
        out: dict[str, float | None] = {}
        for kind, (rows, num_bytes) in sorted(self._rows.items()):
            weight = float(rows["loss_weights"].sum())
            total = 0.0
            for first in range(0, len(rows["tokens"]), self._batch):
                part = {name: array[first : first + self._batch] for name, array in rows.items()}
                total += float(self._loss(params, self._place(part)))
            out[f"heldout/{kind}/loss"] = total / weight if math.isfinite(total) and weight else None
            out[f"heldout/{kind}/bits_per_byte"] = (
                total / math.log(2) / num_bytes if math.isfinite(total) and num_bytes else None
            )
        return out

    def _total_loss(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Weighted sum of the losses of a batch, () float32. Documents are masked whatever the recipe trains with."""
        dtype = jnp.dtype(self.recipe.train.compute_dtype)
        x = hidden_states(
            params,
            self.recipe.model,
            batch["tokens"],
            batch["segment_ids"],
            batch["positions"],
            compute_dtype=dtype,
        )
        return cross_entropy(x, output_head(params), batch["targets"], batch["loss_weights"]).total

    def _place(self, rows: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        sharding = batch_sharding(self.mesh)
        return {name: jax.make_array_from_callback(a.shape, sharding, a.__getitem__) for name, a in rows.items()}

    def _read(self) -> None:
        """Read the rows once: the first ``eval_rows`` of every kind, sources in turn."""
        if self._rows:
            return
        tokenizer = Tokenizer.load(f"{self._corpus}/tokenizer.json")
        special = {tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.im_start_id, tokenizer.im_end_id}
        sizes = np.array([0 if i in special else len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])
        for kind in sorted({entry["kind"] for entry in self._sets}):
            readers = [RowReader(row_folder(self._corpus, e["name"])) for e in self._sets if e["kind"] == kind]
            share = -(-self.recipe.train.eval_rows // len(readers))
            parts = [reader.read(np.arange(min(share, len(reader)))) for reader in readers]
            names = ("tokens", "targets", "loss_weights", "segment_ids", "positions")
            rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
            whole = len(rows["tokens"]) // self._batch * self._batch
            rows = {name: array[:whole] for name, array in rows.items()}
            if whole:
                trained = rows["loss_weights"] > 0
                self._rows[kind] = (rows, float(sizes[rows["targets"][trained]].sum()))
