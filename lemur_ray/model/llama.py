"""Llama and its relatives as flax.nnx modules with stacked layers, and pure functions over their parameter tree.

Each parameter is declared once, in ``__init__`` of its module: shape, logical axes, initial scale. The abstract tree,
shardings, checkpoints and the Hugging Face table derive from that declaration. Modules hold no state between calls: the
forward pass merges one layer of a plain nested dict into a static graph.

Legend: N layers, B rows, L length, D dim, H heads, K kv heads, h head width, F feed-forward, V vocabulary."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from lemur_ray.config import ModelConfig
from lemur_ray.model.attention.dispatch import attention as attend
from lemur_ray.model.attention.interface import NO_LIMITS, Limits
from lemur_ray.model.embedding import lookup
from lemur_ray.model.layout import Layout
from lemur_ray.model.matmul import matmul, matmuls
from lemur_ray.model.norm import rms_norm
from lemur_ray.model.remat import GATHERED, named, rematerialised
from lemur_ray.model.rope import Table, apply_rope, rope_tables

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}
Params = dict[str, Any]
"""Parameter tree: nested dict of arrays whose paths are the parameter names."""


@dataclasses.dataclass(frozen=True)
class Forward:
    """Options of a forward pass: dtypes, recomputation, attention kernel and placement on devices."""

    compute_dtype: Any = jnp.float32
    """Type of activations."""
    operand_dtype: Any = None
    """Type to which operands of matrix products are rounded (see ``matmul``); None: compute_dtype."""
    remat: str = "none"
    """Name of a rematerialisation policy (``model.remat``)."""
    attention: str = "chunked"
    """A name of ``attention.IMPLEMENTATIONS``."""
    limits: Limits = NO_LIMITS
    """Limits of attention; window and cap are the model's."""
    layout: Layout = Layout()
    """Placement of weights and activations; the default is a single device."""


class Context(NamedTuple):
    """Inputs of a layer that are the same for all layers, besides the residual stream."""

    segment_ids: jax.Array
    """(B, L) integer; tokens attend inside equal ids."""
    ropes: tuple[Table, Table]
    """Cosines and sines, each (B, L, h / 2) float32, of the rotary embedding in layers without and with a window."""
    how: Forward
    """Options of the forward pass, in which ``operand_dtype`` is not None."""


def _weight(rngs: nnx.Rngs, shape: tuple[int, ...], axes: tuple[str, ...], scale: float) -> nnx.Param:
    """New float32 matrix with logical axes as metadata, normal with deviation ``scale``."""
    return nnx.Param(scale * jax.random.normal(rngs.params(), shape, jnp.float32), axes=axes)


def _constant(value: float, size: int, axis: str) -> nnx.Param:
    """New float32 vector of ``size`` equal values with its logical axis as metadata."""
    return nnx.Param(jnp.full(size, value, jnp.float32), axes=(axis,))


def _norm_start(config: ModelConfig) -> float:
    """Initial weight of a norm, with which it multiplies by 1."""
    return 0.0 if config.norm_offset else 1.0


def normed(x: jax.Array, weight: jax.Array, config: ModelConfig) -> jax.Array:
    """RMSNorm of x over its last axis. weight: of one of the model's norms, (x.shape[-1],); config: epsilon, and
    whether 1 is added to the weight."""
    return rms_norm(x, weight + 1.0 if config.norm_offset else weight, config.norm_eps)


class Block(nnx.Module):
    """One transformer layer: pre-norm attention and gated feed-forward, each added to the residual stream."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs) -> None:
        c = self.config = config
        dim, width, kv_width = c.dim, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        # Outputs to the residual stream start smaller, so that its variance does not grow with depth.
        residual, one = (2 * c.num_layers) ** -0.5, _norm_start(c)
        self.attn_norm = _constant(one, dim, "norm")
        self.wq = _weight(rngs, (dim, width), ("dim", "heads"), dim**-0.5)
        self.wk = _weight(rngs, (dim, kv_width), ("dim", "kv_heads"), dim**-0.5)
        self.wv = _weight(rngs, (dim, kv_width), ("dim", "kv_heads"), dim**-0.5)
        self.wo = _weight(rngs, (width, dim), ("heads", "dim"), residual * width**-0.5)
        self.mlp_norm = _constant(one, dim, "norm")
        self.gate = _weight(rngs, (dim, c.ffn_dim), ("dim", "ffn"), dim**-0.5)
        self.up = _weight(rngs, (dim, c.ffn_dim), ("dim", "ffn"), dim**-0.5)
        self.down = _weight(rngs, (c.ffn_dim, dim), ("ffn", "dim"), residual * c.ffn_dim**-0.5)
        if c.qkv_bias:
            self.bq = _constant(0.0, width, "heads")
            self.bk, self.bv = _constant(0.0, kv_width, "kv_heads"), _constant(0.0, kv_width, "kv_heads")
        if c.qk_norm:
            self.q_norm, self.k_norm = _constant(one, c.head_dim, "norm"), _constant(one, c.head_dim, "norm")
        if c.post_norms:
            self.post_attn_norm, self.post_mlp_norm = _constant(one, dim, "norm"), _constant(one, dim, "norm")

    def __call__(self, x_BLD: jax.Array, context: Context, window: int) -> jax.Array:
        """The residual stream (B, L, D) after the layer. window: number of tokens that a token attends to, itself
        included; 0: all."""
        c, layout, dtype = self.config, context.how.layout, context.how.operand_dtype
        rows, length, _ = x_BLD.shape
        product = functools.partial(matmul, operand_dtype=dtype, flat=layout.mesh is None)
        add_up = None if layout.mesh is None else layout.added_up
        products = functools.partial(matmuls, operand_dtype=dtype, add_up=add_up)

        def heads(y: jax.Array, num_heads: int) -> jax.Array:
            return layout.heads(y.reshape(rows, length, num_heads, c.head_dim))

        y = layout.whole(normed(x_BLD, self.attn_norm[...], c))
        q, k, v = products(y, (self.wq[...], self.wk[...], self.wv[...]))
        if c.qkv_bias:
            q, k, v = (x + bias[...].astype(x.dtype) for x, bias in ((q, self.bq), (k, self.bk), (v, self.bv)))
        q, k, v = heads(q, c.num_heads), heads(k, c.num_kv_heads), heads(v, c.num_kv_heads).astype(dtype)
        if c.qk_norm:
            norm = layout.per_head(functools.partial(normed, config=c))
            q, k = norm(named(q, "query"), self.q_norm[...]), norm(named(k, "key"), self.k_norm[...])
        rope = context.ropes[window > 0]
        q, k = apply_rope(q, rope), apply_rope(k, rope).astype(dtype)
        q = (q if c.query_gain == 1.0 else q * c.query_gain).astype(dtype)
        if not c.qk_norm:  # whose backward pass needs the products themselves, kept above
            q, k = named(q, "query"), named(k, "key")
        v = named(v, "value")
        limits = context.how.limits._replace(window=window, cap=c.attention_cap)
        mixed = attend(q, k, v, context.segment_ids, context.how.attention, layout, limits)
        mixed = mixed.reshape(rows, length, -1)
        mixed = layout.split(product(mixed.astype(x_BLD.dtype), self.wo[...]))
        if c.post_norms:
            mixed = normed(mixed, self.post_attn_norm[...], c)
        x_BLD = named(x_BLD + mixed, "mid")

        y = layout.whole(normed(x_BLD, self.mlp_norm[...], c))
        gate, up = products(y, (self.gate[...], self.up[...]))
        gate, up = named(layout.features(gate), "gate"), named(layout.features(up), "up")
        out = layout.split(product(ACTIVATIONS[c.activation](gate) * up, self.down[...]))
        return x_BLD + (normed(out, self.post_mlp_norm[...], c) if c.post_norms else out)


class Llama(nnx.Module):
    """All parameters of a model; ``layers`` is one Block whose weights have a leading axis over the layers."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs) -> None:
        c = config
        # A tied embedding is also the output head, so it starts at the head's scale.
        scale = 0.5 * (c.dim**-0.5 if c.tie_embeddings else 1)
        self.embed = _weight(rngs, (c.vocab_size, c.dim), ("vocab", "dim"), scale)
        self.layers = nnx.vmap(lambda r: Block(c, r), in_axes=0, out_axes=0)(rngs.split(c.num_layers))
        self.final_norm = _constant(_norm_start(c), c.dim, "norm")
        if not c.tie_embeddings:
            self.head = _weight(rngs, (c.dim, c.vocab_size), ("dim", "vocab"), 0.5 * c.dim**-0.5)


def check_config(config: ModelConfig) -> None:
    """Raise ValueError if num_kv_heads does not divide num_heads or head_dim is odd."""
    if config.num_heads % config.num_kv_heads:
        raise ValueError(
            f"num_kv_heads {config.num_kv_heads} does not divide num_heads {config.num_heads}: choose a divisor"
        )
    if config.head_dim % 2:
        raise ValueError(f"head_dim {config.head_dim} is odd: rotary embedding needs pairs, choose an even width")


@functools.lru_cache(maxsize=16)
def _abstract(config: ModelConfig) -> Any:
    check_config(config)
    return nnx.split(nnx.eval_shape(lambda: Llama(config, nnx.Rngs(0))))[1]


@functools.lru_cache(maxsize=16)
def _block_graph(config: ModelConfig) -> Any:
    return nnx.split(nnx.eval_shape(lambda: Block(config, nnx.Rngs(0))))[0]


def is_matrix(axes: tuple[str, ...]) -> bool:
    """Whether a parameter with these logical axes is a matrix (perhaps of all layers); norms and biases are not."""
    return sum(axis != "layers" for axis in axes) == 2


def abstract_params(config: ModelConfig) -> Params:
    """The parameter tree with jax.ShapeDtypeStruct leaves (shape and dtype), without allocating arrays."""
    return nnx.to_pure_dict(_abstract(config))


def logical_axes(config: ModelConfig) -> Params:
    """The parameter tree with a tuple of logical axis names for each leaf; those of layers begin with "layers"."""
    state = _abstract(config)
    axes = jax.tree.map(lambda p: p.get_metadata()["axes"], state, is_leaf=lambda p: isinstance(p, nnx.Variable))
    tree = nnx.to_pure_dict(axes)
    tree["layers"] = {name: ("layers", *names) for name, names in tree["layers"].items()}
    return tree


def init_params(config: ModelConfig, seed: int = 0) -> Params:
    """Random initial parameters, float32; they depend on config and seed only, not on a mesh. Raises ValueError
    (`check_config`)."""
    check_config(config)
    return nnx.to_pure_dict(nnx.state(Llama(config, nnx.Rngs(seed))))


def num_params(config: ModelConfig) -> int:
    """Number of parameters of a model, embedding and head included."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


def output_head(params: Params) -> jax.Array:
    """The output head (D, V) of a parameter tree; the transposed embedding if they are tied."""
    return params["head"] if "head" in params else params["embed"].T


def unstack_layers(params: Params) -> Params:
    """Parameter tree with ``layers`` as a list of one dict per layer instead of stacked arrays."""
    stacked = params["layers"]
    num_layers = len(stacked["attn_norm"])
    return {**params, "layers": [{name: w[i] for name, w in stacked.items()} for i in range(num_layers)]}


def stack_layers(params: Params) -> Params:
    """Parameter tree with stacked ``layers`` from a list of one dict per layer; inverse of ``unstack_layers``."""
    return {**params, "layers": jax.tree.map(lambda *layers: jnp.stack(layers), *params["layers"])}


def hidden_states(
    params: Params,
    config: ModelConfig,
    tokens_BL: jax.Array,
    segment_ids_BL: jax.Array,
    positions_BL: jax.Array,
    how: Forward = Forward(),  # frozen
) -> jax.Array:
    """Forward pass up to the final norm, before the output head: (B, L, D) in ``how.compute_dtype``.
    tokens, segment_ids, positions: (B, L) integer. With a mesh in ``how.layout`` weights and batch lie on it and the
    result is split along the sequence. Stacked layers run in one compiled loop (small program, fast compile); a list
    from ``unstack_layers`` is unrolled (faster on CPU)."""
    graph, layout = _block_graph(config), how.layout
    dtype = how.operand_dtype or how.compute_dtype
    resolved = dataclasses.replace(how, operand_dtype=dtype)
    context = Context(segment_ids_BL, rope_tables(positions_BL, config), resolved)
    axes = {name: names[1:] for name, names in logical_axes(config)["layers"].items()}

    def block(x_BLD: jax.Array, weights: Params, window: int) -> tuple[jax.Array, None]:
        if layout.mesh is not None:
            weights = {name: named(layout.gathered(w, axes[name], dtype), GATHERED) for name, w in weights.items()}
        return nnx.merge(graph, weights)(x_BLD, context, window), None

    bodies: list[Any] = [functools.partial(block, window=config.window_of(layer)) for layer in range(config.period)]
    if how.remat != "none" or layout.mesh is not None:
        bodies = [rematerialised(body, how.remat) for body in bodies]
    x = lookup(params["embed"], tokens_BL, layout, how.compute_dtype)
    x = x * jnp.asarray(config.dim**0.5, x.dtype) if config.embed_scale else x
    return normed(_through(params["layers"], x, bodies), params["final_norm"], config)


def _through(layers: Any, x: jax.Array, bodies: list[Any]) -> jax.Array:
    """``x`` after all layers; layer i is computed by ``bodies[i % len(bodies)]``. layers: list, or stacked arrays."""
    if isinstance(layers, list):
        for i, weights in enumerate(layers):
            x, _ = bodies[i % len(bodies)](x, weights)
        return x
    if len(bodies) == 1:
        return jax.lax.scan(bodies[0], x, layers)[0]
    period, depth = len(bodies), len(layers["attn_norm"])
    whole = depth - depth % period

    def group(x: jax.Array, weights: Params) -> tuple[jax.Array, None]:
        return _through([_layer(weights, i) for i in range(period)], x, bodies), None

    groups = jax.tree.map(lambda w: w[:whole].reshape(-1, period, *w.shape[1:]), layers)
    x, _ = jax.lax.scan(group, x, groups)
    return _through([_layer(layers, i) for i in range(whole, depth)], x, bodies)


def _layer(layers: Params, index: int) -> Params:
    """Weights of one of several stacked layers."""
    return jax.tree.map(lambda w: w[index], layers)
