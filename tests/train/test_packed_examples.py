"""Conversations packed into rows: each one's loss and the gradient are those of rows of its own."""

import dataclasses
from pathlib import Path

import jax
import numpy as np

from lemur_ray.agents.messages import Message
from lemur_ray.config import DataConfig, ModelConfig, Recipe
from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.rows import RowReader
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.table import Example, write_table
from lemur_ray.model.llama import init_params
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.step import execution, gradients

TOKENIZER = Tokenizer.bytes_only()
MODEL = ModelConfig(
    vocab_size=TOKENIZER.vocab_size, num_layers=2, dim=32, ffn_dim=64, num_heads=2, num_kv_heads=1, head_dim=16,
    max_seq_len=128,
)  # fmt: skip
RECIPE = Recipe(model=MODEL, data=DataConfig(seq_len=128))
PARAMS = init_params(MODEL, 0)


def examples() -> list[Example]:
    out = []
    for i in range(9):
        talk = Conversation("toy", str(i), (Message("user", f"q{i}"), Message("assistant", "a" * (i + 1))))
        ids, trained = encode_chat(TOKENIZER, talk.messages)
        out.append(Example("toy", talk.id, "", np.array(ids, np.int32), np.array(trained)))
    return out


def summed(folder: Path, recipe: Recipe = RECIPE) -> tuple[float, dict, np.ndarray]:
    """Sum of losses, its gradient, and the sum of losses of each row of a table."""
    reader = RowReader(row_folder(folder, "chat"))
    batch = {name: jax.numpy.asarray(a) for name, a in reader.read(np.arange(len(reader))).as_dict().items()}
    total, grads, rows = jax.jit(lambda p, b: gradients(p, b, recipe, execution(recipe)))(PARAMS, batch)
    return float(total), grads, np.asarray(rows)


def test_losses_and_gradients_are_equal_with_and_without_packing(tmp_path: Path) -> None:
    tables = {how: write_table(examples(), TOKENIZER, tmp_path / how, seq_len=128, packing=how, seed=0, report={})[0]
              for how in ("best_fit", "none")}  # fmt: skip
    packed_total, packed, packed_rows = summed(tables["best_fit"])
    total, alone, rows = summed(tables["none"])
    assert len(packed_rows) < len(rows) == 9
    np.testing.assert_allclose(packed_total, total, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(packed), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(abs(b).max())))


def test_as_the_released_code_packed_them_examples_see_each_other(tmp_path: Path) -> None:
    folder, _ = write_table(examples(), TOKENIZER, tmp_path, seq_len=128, packing="lemur", seed=0, report={})
    alone, _ = write_table(examples(), TOKENIZER, tmp_path, seq_len=128, packing="none", seed=0, report={})
    assert abs(summed(folder)[0] - summed(alone)[0]) > 1e-3


def test_empty_rows_add_nothing(tmp_path: Path) -> None:
    folder, _ = write_table(examples(), TOKENIZER, tmp_path / "a", seq_len=128, report={})
    filled, manifest = write_table(
        examples(), TOKENIZER, tmp_path / "b", seq_len=128, num_rows=lambda rows, examples: rows + 3, report={}
    )
    assert manifest["sources"][0]["empty_rows"] == 3
    total, grads, _ = summed(folder)
    same_total, same_grads, rows = summed(filled)
    assert (rows == 0).sum() == 3
    np.testing.assert_allclose(same_total, total, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(same_grads), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_masks_can_be_left_off_by_the_recipe_for_any_table(tmp_path: Path) -> None:
    folder, _ = write_table(examples(), TOKENIZER, tmp_path, seq_len=128, report={})
    joined = dataclasses.replace(RECIPE, data=dataclasses.replace(RECIPE.data, mask_documents=False))
    assert abs(summed(folder)[0] - summed(folder, joined)[0]) > 1e-3
