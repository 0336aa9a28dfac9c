"""Recipes: one file per experiment, each a single frozen value named after what it trains.

Knows nothing of jax, Ray or files. A recipe's file cites the source of its numbers; `get_recipe` finds it by name."""

import dataclasses
import importlib

from lemur_ray.config import Recipe, did_you_mean

NAMES = (
    "nano", "nano-chat", "nano-mixture", "llama2-7b", "llama2-13b", "llama2-34b", "llama2-70b", "lemur-70b",
    "lemur-7b-chat", "lemur-70b-chat", "llama3-8b", "qwen3-8b",
)  # fmt: skip

FROM_SCRATCH = ("nano", "nano-chat", "nano-mixture")
"""Recipes whose vocabulary is the corpus tokenizer's; all others keep the vocabulary of the published weights."""


def get_recipe(name: str) -> Recipe:
    """The recipe of that name; ``llama2_70b`` and ``llama2-70b`` are the same. Raises ValueError for an unknown name,
    with the nearest known one."""
    key = name.lower().replace("_", "-")
    if key not in NAMES:
        raise ValueError(f"unknown recipe {name!r}{did_you_mean(key, NAMES)}")
    recipe: Recipe = importlib.import_module(f"lemur_ray.recipes.{key.replace('-', '_')}").RECIPE
    return recipe


SPECIAL_TOKENS = 7
"""Maximum tokens added to a published vocabulary: ChatML's two; in older corpora all of ``text.special_tokens``."""


def with_vocabulary(recipe: Recipe, vocab_size: int) -> Recipe:
    """The recipe with a model large enough for a tokenizer of ``vocab_size`` tokens; the same recipe if it is.
    A recipe of `FROM_SCRATCH` takes the tokenizer's vocabulary, unless the command line set another. Others keep the
    vocabulary of published weights; if at most SPECIAL_TOKENS are missing, it grows to a multiple of 128. Raises
    ValueError if the tokenizer has more tokens than the model has rows."""
    size = recipe.model.vocab_size
    if recipe.name in FROM_SCRATCH and size == get_recipe(recipe.name).model.vocab_size:
        return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, vocab_size=vocab_size))
    rounded = -(-vocab_size // 128) * 128
    if size < vocab_size <= size + SPECIAL_TOKENS:
        return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, vocab_size=rounded))
    if vocab_size > size:
        raise ValueError(
            f"the tokenizer has {vocab_size} tokens, the model of recipe {recipe.name!r} only {size} rows: "
            f"build the corpus with a tokenizer of at most {size} tokens or pass --model.vocab-size {rounded}"
        )
    return recipe
