"""The embedding lookup, on one device or with the table sharded over a mesh.

Legend: B rows, L length, D dim, V vocabulary."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from lemur_ray.model.layout import Layout, scattered


def lookup(table_VD: jax.Array, tokens_BL: jax.Array, layout: Layout, dtype: Any) -> jax.Array:
    """Embeddings (B, L, D) of token ids (B, L) in ``dtype``; on a mesh split along the sequence.
    On a mesh each device looks up the tokens of its vocabulary shard in float32; the results are reduce-scattered, so
    no device ever holds the whole table or its gradient."""
    if layout.mesh is None:
        return jnp.asarray(table_VD)[tokens_BL].astype(dtype)

    def local(table: jax.Array, tokens: jax.Array) -> jax.Array:
        table = jax.lax.all_gather(table, "fsdp", axis=1, tiled=True)
        ids = tokens - jax.lax.axis_index("tp") * table.shape[0]
        mine = (ids >= 0) & (ids < table.shape[0])
        rows = jnp.where(mine[..., None], table[jnp.where(mine, ids, 0)], 0.0).astype(dtype)
        return scattered(rows)

    rows = layout.rows
    return layout.local(local, (P("tp", "fsdp"), P(rows, None)), P(rows, "tp", None))(table_VD, tokens_BL)
