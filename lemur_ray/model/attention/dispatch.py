"""Causal attention over packed documents: the implementations, and the choice of the fastest per platform.

Every implementation takes segment ids and is tested against ``oracle``. Positions enter through the rotary embedding.
Serving has a separate attention over cached keys.

Legend: B rows, L length, H query heads, K key/value heads, h head width."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from lemur_ray.model.attention import cudnn, splash
from lemur_ray.model.attention.block_skipping import skipping
from lemur_ray.model.attention.interface import NO_LIMITS, Attention, Limits
from lemur_ray.model.attention.oracle import chunked, plain
from lemur_ray.model.layout import Layout
from lemur_ray.model.remat import named

IMPLEMENTATIONS: dict[str, Attention] = {
    "plain": plain,
    "chunked": chunked,
    "skipping": skipping,
    "splash": splash.splash,
    "cudnn": cudnn.packed_rows,
    "cudnn_mask": cudnn.masked,
}
"""Implementations of attention by name."""
NAMES_ITSELF = ("splash", "cudnn")
"""Implementations that name their output and saved values "attention" for remat policies themselves."""


def choose(
    platform: str,
    num_devices: int,
    length: int,
    head_dim: int,
    dtype: Any,
    cap: float = 0.0,
    capability: tuple[int, int] = cudnn.HOPPER,
) -> tuple[str, str]:
    """(name of the fastest implementation for a platform and shape, reason if it is a fallback, else "").
    platform: cpu, tpu, gpu, cuda or rocm; any other gets "chunked". length: tokens of a row; dtype: of q, k and v; cap:
    limit of scores, 0: none; capability: compute capability of a GPU. On one CPU device loops with run-time bounds are
    fastest, but they cannot be partitioned. num_devices: devices of the mesh. head_dim: features of a head."""
    if platform == "cpu":
        return ("skipping" if num_devices == 1 else "chunked"), ""
    if platform == "tpu":
        reason = splash.unsupported_reason(length, head_dim)
        return ("chunked", reason) if reason else ("splash", "")
    if platform in ("gpu", "cuda", "rocm"):
        reason = cudnn.unsupported_reason(head_dim, dtype, cap, capability)
        if not reason:
            return "cudnn", ""
        masked = not cudnn.unsupported_reason(head_dim, dtype, cap) and head_dim <= cudnn.MASKED_HEAD_DIM
        return ("cudnn_mask" if masked and length <= cudnn.MASKED_LENGTH else "chunked"), reason
    return "chunked", f"no kernel for platform {platform!r}"


def attention(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    name: str,
    layout: Layout | None = None,
    limits: Limits = NO_LIMITS,
) -> jax.Array:
    """`interface.Attention` by the implementation ``name`` of IMPLEMENTATIONS; the output carries the name "attention"
    for remat policies. layout: on a mesh every device attends for its rows and heads; None: one device. Raises
    ValueError for an unknown name."""
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"attention {name!r} does not exist: choose one of {', '.join(IMPLEMENTATIONS)}")
    attend: Callable[..., jax.Array] = partial(IMPLEMENTATIONS[name], limits=limits)
    if layout is not None and layout.mesh is not None:
        heads = P(layout.rows, None, "tp", None)
        attend = layout.local(attend, (heads, heads, heads, P(layout.rows, None)), heads)
    out = attend(q_BLHh, k_BLKh, v_BLKh, segment_ids_BL)
    return out if name in NAMES_ITSELF else named(out, "attention")
