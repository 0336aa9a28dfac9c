"""FLOP conventions against the numbers of the pretraining specification."""

import jax
import pytest

from lemur_ray.model.flops import flops_per_token
from lemur_ray.recipes import get_recipe
from lemur_ray.train.run import speed


def test_a_token_of_the_70b_model_costs_the_published_flops() -> None:
    config = get_recipe("llama2-70b").model
    assert flops_per_token(config, 4096, "6n") == pytest.approx(4.14e11, rel=2e-3)
    assert flops_per_token(config, 4096, "6n_causal") == pytest.approx(4.30e11, rel=2e-3)


def test_a_run_at_the_peak_has_utilisation_one(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, devices = get_recipe("llama2-7b"), jax.devices()
    peak = 1000 * flops_per_token(recipe.model, recipe.data.seq_len, "6n")
    assert not [key for key in speed.utilisation(recipe, 1000) if "mfu" in key], "nobody knows the peak of this device"
    monkeypatch.setitem(speed.PEAK_FLOPS, devices[0].device_kind, peak / len(devices))
    assert speed.utilisation(recipe, 1000)["mfu_6n"] == pytest.approx(1.0)


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of 6n, 6n_causal"):
        flops_per_token(get_recipe("nano").model, 1024, "12n")
