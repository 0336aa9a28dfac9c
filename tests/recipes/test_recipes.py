"""The recipes hold the papers' numbers."""

import dataclasses
import math

import pytest

from lemur_ray.recipes import NAMES, SPECIAL_TOKENS, get_recipe, with_vocabulary
from lemur_ray.recipes.lemur_mixture import TABLE_8
from lemur_ray.train.optimizer import learning_rate

PARAMETERS = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-34b": 33_743_970_304,
    "llama2-70b": 68_976_648_192,
    "lemur-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "qwen3-8b": 8_190_735_360,
}
ON_GPUS = ("llama3-8b", "qwen3-8b")


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_published_models_have_their_published_number_of_parameters(name: str, count: int) -> None:
    assert get_recipe(name).model.num_params == count


@pytest.mark.parametrize("name", ["nano", "llama2-7b", "llama2-70b"])
def test_the_parameter_formula_counts_the_leaves_of_the_model(name: str) -> None:
    from lemur_ray.model.llama import num_params

    model = get_recipe(name).model
    assert model.num_params == num_params(model)
    tied = dataclasses.replace(model, tie_embeddings=True)
    assert tied.num_params == num_params(tied)


def test_nano_is_a_model_for_minutes_of_cpu_time() -> None:
    nano = get_recipe("nano")
    assert 1e6 < nano.model.num_params < 3e6
    assert 2000 < nano.model.vocab_size <= 4096
    assert nano.model.max_seq_len == nano.data.seq_len == 1024
    assert nano.data.code_to_text == 10.0


@pytest.mark.parametrize("name", ON_GPUS)
def test_recipes_of_one_host_train_on_a_quarter_of_that_for_10_billion_tokens(name: str) -> None:
    recipe = get_recipe(name)
    assert recipe.tokens_per_step == 1_048_576
    assert 10e9 <= recipe.train.steps * recipe.tokens_per_step < 10e9 + recipe.tokens_per_step
    assert (recipe.optimizer.b1, recipe.optimizer.b2, recipe.optimizer.clip_norm) == (0.9, 0.95, 1.0)
    assert recipe.data.sources == get_recipe("lemur-70b").data.sources
    assert recipe.mesh.num_workers == recipe.mesh.fsdp == 8


LARGE = [name for name in NAMES if "nano" not in name and "chat" not in name and name not in ON_GPUS]


@pytest.mark.parametrize("name", LARGE)
def test_large_recipes_train_on_4m_tokens_a_step(name: str) -> None:
    recipe = get_recipe(name)
    assert recipe.tokens_per_step == 4_194_304
    assert (recipe.optimizer.b1, recipe.optimizer.b2, recipe.optimizer.clip_norm) == (0.9, 0.95, 1.0)
    assert recipe.source
    assert recipe.train.rows_per_step % (recipe.mesh.fsdp * recipe.train.microbatches) == 0
    chips = math.prod(int(side) for side in recipe.mesh.topology.split("x"))
    assert chips == recipe.mesh.num_workers * 4 == recipe.mesh.fsdp * recipe.mesh.tp


def test_lemur_trains_90_billion_tokens_with_the_papers_schedule() -> None:
    recipe = get_recipe("lemur-70b")
    assert recipe.train.steps == 21_458
    assert recipe.train.steps * recipe.train.rows_per_step == 21_972_992

    def lr(update: int) -> float:
        import numpy as np

        return float(learning_rate(recipe.optimizer, recipe.train.steps, np.float64(update), np))

    for update, expected in ((1, 2e-8), (2_000, 4e-5), (21_458, 4e-6)):
        assert lr(update) == pytest.approx(expected, abs=1e-12)


def test_the_llama_2_recipes_have_that_papers_learning_rates_and_2t_tokens() -> None:
    rates = {"llama2-7b": 3e-4, "llama2-13b": 3e-4, "llama2-34b": 1.5e-4, "llama2-70b": 1.5e-4}
    for name, rate in rates.items():
        recipe = get_recipe(name)
        assert recipe.optimizer.peak_lr == rate
        assert 2e12 <= recipe.train.steps * recipe.tokens_per_step < 2e12 + recipe.tokens_per_step


def test_table_8_is_kept_as_printed() -> None:
    assert len(TABLE_8) == 16
    assert math.fsum(row.weight_percent for row in TABLE_8) == pytest.approx(99.90)
    assert math.fsum(row.weight_percent for row in TABLE_8 if row.kind == "code") == pytest.approx(90.80)
    assert math.fsum(row.effective_tokens_billion for row in TABLE_8) == pytest.approx(89.89)
    sources = get_recipe("lemur-70b").data.sources
    assert [source.weight for source in sources] == [row.weight_percent for row in TABLE_8]
    assert [source.epochs for source in sources] == [row.epochs for row in TABLE_8]


def test_names_are_found_with_hyphen_or_underscore_and_errors_name_the_nearest() -> None:
    assert get_recipe("llama2_7b") is get_recipe("llama2-7b")
    with pytest.raises(ValueError, match="did you mean 'nano'"):
        get_recipe("nanoo")
    with pytest.raises(ValueError, match="llama2-7b, llama2-13b"):
        get_recipe("gpt")


def test_every_recipe_has_its_own_hash_and_it_is_the_same_in_every_process() -> None:
    hashes = {name: get_recipe(name).hash for name in NAMES}
    assert len(set(hashes.values())) == len(NAMES)
    assert hashes["lemur-70b"] == HASH_OF_LEMUR_70B


HASH_OF_LEMUR_70B = "7a2fd4ed5a592fe5"
"""Changes only with a field that decides numbers; then older checkpoints are of another recipe, on purpose."""


def test_a_model_from_scratch_takes_the_vocabulary_of_its_tokenizer() -> None:
    nano = get_recipe("nano")
    assert with_vocabulary(nano, 3000).model.vocab_size == 3000
    chosen = dataclasses.replace(nano, model=dataclasses.replace(nano.model, vocab_size=4096))
    assert with_vocabulary(chosen, 3000).model.vocab_size == 4096


def test_a_published_model_grows_by_the_special_tokens_and_no_more() -> None:
    from lemur_ray.text.tokenizer import SPECIALS

    assert len(SPECIALS) == SPECIAL_TOKENS
    for name in ("llama2-7b", "lemur-70b"):
        assert with_vocabulary(get_recipe(name), 32_005).model.vocab_size == 32_128
    with pytest.raises(ValueError, match=r"--model\.vocab-size 32128"):
        with_vocabulary(get_recipe("llama2-7b"), 32_100)


def test_a_tokenizer_that_does_not_fit_a_published_model_is_an_error_with_both_sizes() -> None:
    assert with_vocabulary(get_recipe("llama2-7b"), 20_000).model.vocab_size == 32_000
    with pytest.raises(ValueError, match="50000 tokens, the model of recipe 'llama2-7b' only 32000"):
        with_vocabulary(get_recipe("llama2-7b"), 50_000)
