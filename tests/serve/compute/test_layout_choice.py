"""Which layout of keys and values a model gets where."""

import jax.numpy as jnp
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.cache_layout import PLAIN, ByToken, layout_for
from lemur_ray.serve.compute.paged_cache import Paged, unsupported_reason


def test_the_kernel_is_for_tpu_and_for_shapes_that_it_can_take(caplog: pytest.LogCaptureFixture) -> None:
    config = ModelConfig(num_heads=8, num_kv_heads=8, head_dim=128)
    assert layout_for(config, jnp.bfloat16, "tpu") == Paged()
    assert layout_for(config, jnp.bfloat16, "cpu") == layout_for(config, jnp.bfloat16, "gpu") == PLAIN
    assert not caplog.messages
    assert layout_for(ModelConfig(num_heads=8, num_kv_heads=8, head_dim=64), jnp.bfloat16, "tpu") == ByToken()
    assert caplog.messages == [
        "attention without the kernel for TPU: the paged kernel needs heads of a multiple of 128 features, got 64"
    ]


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "dtype", "fits"),
    [
        (32, 32, "bfloat16", True),
        (32, 8, "bfloat16", True),
        (64, 8, "bfloat16", True),
        (40, 40, "bfloat16", True),
        (8, 1, "bfloat16", True),
        (12, 12, "bfloat16", False),
        (32, 8, "float32", True),
        (32, 32, "float32", False),
        (32, 8, "float16", False),
    ],
)
def test_which_heads_fit_is_known_without_a_compiler(num_heads: int, num_kv_heads: int, dtype: str, fits: bool) -> None:
    config = ModelConfig(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=128)
    assert (unsupported_reason(config, dtype) == "") is fits


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "dtype", "fits"),
    [(4, 1, "bfloat16", True), (8, 4, "bfloat16", False), (16, 8, "bfloat16", False), (4, 1, "float32", False)],
)
def test_heads_of_gemma_fit_where_a_device_has_one_kv_head(
    num_heads: int, num_kv_heads: int, dtype: str, fits: bool
) -> None:
    """The shapes of Gemma 3 1B and 4B and of Gemma 2 9B; the compiler for TPU refuses a stride over wider heads."""
    config = ModelConfig(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=256)
    assert (unsupported_reason(config, dtype) == "") is fits
