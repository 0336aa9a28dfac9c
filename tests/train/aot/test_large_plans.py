"""Plans of the recipes in their full width, for slices that are not there."""

import dataclasses
import math

import pytest

from lemur_ray.recipes import get_recipe
from tests.train.aot.counted_products import backward_is_twice_forward, products
from tests.train.aot.plan_runs import libtpu, plan_pod


@pytest.mark.sweep  # five minutes of compiling; above, a small model
@pytest.mark.timeout(1800)
def test_each_matrix_of_7b_has_two_products_backward_for_one_forward() -> None:
    """On v6e the compiler makes windowed products: rings in loops that count by two."""
    libtpu()
    flags = ("--model.num-layers", "2", "--train.remat", "full")
    planned, _ = plan_pod("llama2-7b", "--topology", "v6e:2x4", *flags, limit_s=1700)
    assert backward_is_twice_forward(planned) == 4
    recipe = get_recipe("llama2-7b")
    expected = products(dataclasses.replace(recipe.model, num_layers=2), recipe.tokens_per_step, again=True) / 8
    assert sum(planned["product_flops_per_chip"].values()) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_the_run_of_the_paper_fits_its_pod_with_hardly_any_recomputation() -> None:
    libtpu()
    planned, _ = plan_pod("lemur-70b", "--topology", "v4:4x8x8", limit_s=850)
    assert planned["hbm_peak_gib"] <= 24.5
    assert planned["executed_over_model"] <= 1.01
    assert planned["compile_s"] <= 600
    assert planned["model_flops_per_step"] == pytest.approx(4.30e11 * 1024 * 4096, rel=0.01)


@pytest.mark.sweep
@pytest.mark.parametrize("slices", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["llama2-70b", "lemur-70b"])
def test_slices_of_the_70b_recipes_send_each_other_one_gradient_a_step(name: str, slices: int) -> None:
    """Two of the layers in full width, on the slices of the recipe: a loop over layers sends the same for each."""
    libtpu()
    flags = ("--model.num-layers", "2", "--mesh.dcn", str(slices))
    planned, _ = plan_pod(name, "--topology", "v4:4x8x8", *flags, limit_s=850)
    assert planned["mesh"] == {"dcn": slices, "fsdp": 64, "tp": 4}
    model = dataclasses.replace(get_recipe(name).model, num_layers=2)
    gradient = 4 * model.num_params / 256  # in float32, of the part that a chip owns
    between = [c for c in planned["collectives"] if "dcn" in c["axis"]]
    assert sum(c["sent_bytes"] for c in between) == pytest.approx(2 * gradient * (slices - 1) / slices, rel=0.01)
    # Within a slice neither activations nor gradients of matrices are summed whole: every device keeps its part.
    whole = [c for c in planned["collectives"] if c["kind"] == "all-reduce" and "dcn" not in c["axis"]]
    assert max(math.prod(c["shape"]) for c in whole) <= model.dim * 4
