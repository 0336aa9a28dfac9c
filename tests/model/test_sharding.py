"""The rule table: where parameters lie, and what it refuses."""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from lemur_ray.config import MeshConfig, ModelConfig
from lemur_ray.model.layout import MESH_AXES, spec
from lemur_ray.model.sharding import make_mesh, param_shardings
from lemur_ray.recipes import get_recipe


def mesh(dcn: int, fsdp: int, tp: int) -> AbstractMesh:
    return AbstractMesh((dcn, fsdp, tp), MESH_AXES, axis_types=(AxisType.Auto,) * 3)


def test_the_70b_model_lies_on_a_v4_512_pod() -> None:
    placed = param_shardings(get_recipe("llama2-70b").model, mesh(1, 64, 4))  # type: ignore[arg-type]
    assert placed["layers"]["wq"].spec == P(None, "fsdp", "tp")
    assert placed["layers"]["down"].spec == P(None, "tp", "fsdp")
    assert placed["embed"].spec == P("tp", "fsdp")
    assert placed["final_norm"].spec == P(None)


def test_a_mesh_axis_used_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'heads' and 'ffn' both use mesh axis 'tp'"):
        spec(("heads", "ffn"), (8, 8), mesh(1, 2, 2), "layers.odd")  # type: ignore[arg-type]


def test_a_size_that_does_not_divide_is_refused_with_its_name() -> None:
    config = ModelConfig(vocab_size=100, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=4, head_dim=8)
    with pytest.raises(ValueError, match=r"embed: axis 'vocab' of size 100 does not divide over 8"):
        param_shardings(config, mesh(1, 1, 8))  # type: ignore[arg-type]


def test_an_axis_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="'experts' has no rule"):
        spec(("experts",), (8,), mesh(1, 1, 1))  # type: ignore[arg-type]


def test_the_mesh_takes_what_is_left_and_refuses_what_does_not_fill() -> None:
    devices = list(np.asarray(jax.devices()[:1]).repeat(1))
    assert make_mesh(MeshConfig(), devices).shape == {"dcn": 1, "fsdp": 1, "tp": 1}
    with pytest.raises(ValueError, match="does not fill 1 devices"):
        make_mesh(MeshConfig(tp=2), devices)
