"""Products of a training step counted by hand, and those of a compiled one by line and pass."""

from typing import Any

import pytest

from lemur_ray.config import ModelConfig


def products(model: ModelConfig, tokens: int, again: bool) -> float:
    """FLOPs of the matrices of a step: forward, two products backward and, with ``again``, forward a second time; but
    not the last product of a block, whose result nothing in the backward pass needs."""
    down = model.dim * model.ffn_dim
    block = model.dim * model.head_dim * 2 * (model.num_heads + model.num_kv_heads) + 3 * down
    passes = 3 * block + (block - down if again else 0)
    return 2.0 * tokens * (model.num_layers * passes + 3 * model.vocab_size * model.dim)


def backward_is_twice_forward(plan: dict[str, Any]) -> int:
    """Number of lines of the block with products, each of whose matrices has two products backward for one forward."""
    of_pass: dict[str, dict[str, float]] = {"forward": {}, "backward": {}, "recomputed": {}}
    for origin, flops in plan["product_flops_per_chip"].items():
        which, line, _ = origin.split(", ")
        if line.startswith("model/llama.py:"):
            of_pass[which][line] = flops
    assert of_pass["backward"] == pytest.approx({line: 2 * flops for line, flops in of_pass["forward"].items()})
    assert all(flops == pytest.approx(of_pass["forward"][line]) for line, flops in of_pass["recomputed"].items())
    return len(of_pass["forward"])
