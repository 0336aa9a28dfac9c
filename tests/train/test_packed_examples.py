"""Conversations packed into rows: each one's loss and the gradient are those of rows of its own."""

from functools import partial
from pathlib import Path

import jax
import numpy as np

from lemur_ray.agents.messages import Message
from lemur_ray.config import DataConfig, ModelConfig, Recipe
from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.rows import RowReader
from lemur_ray.instruct.config import Packing
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.table import Example, write_table
from lemur_ray.model.llama import init_params
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.step import execution, gradients

TOKENIZER = Tokenizer.bytes_only()
MODEL = ModelConfig(
    vocab_size=TOKENIZER.vocab_size, num_layers=1, dim=32, ffn_dim=64, num_heads=2, num_kv_heads=1, head_dim=16,
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


@partial(jax.jit, static_argnums=1)
def compiled(batch: dict, recipe: Recipe) -> tuple[jax.Array, dict, jax.Array]:
    return gradients(PARAMS, batch, recipe, execution(recipe))


def table(folder: Path, packing: Packing = "best_fit") -> tuple[Path, dict]:
    """Every table has twelve rows, so that one compiled program serves all."""
    rows = {"packing": packing, "seed": 0, "num_rows": lambda rows, examples: 12, "report": {}}
    return write_table(examples(), TOKENIZER, folder, seq_len=128, **rows)  # type: ignore[arg-type]


def summed(folder: Path, recipe: Recipe = RECIPE) -> tuple[float, dict, np.ndarray]:
    """Sum of losses, its gradient, and the sum of losses of each row of a table."""
    reader = RowReader(row_folder(folder, "chat"))
    total, grads, rows = compiled(reader.read(np.arange(len(reader))).as_dict(), recipe)
    return float(total), grads, np.asarray(rows)


def test_losses_and_gradients_are_equal_with_and_without_packing_and_empty_rows_add_nothing(tmp_path: Path) -> None:
    (packed, manifest), (alone, other) = table(tmp_path / "a"), table(tmp_path / "b", "none")
    assert manifest["sources"][0]["empty_rows"] > other["sources"][0]["empty_rows"] == 3
    (packed_total, packed_grads, packed_rows), (total, grads, rows) = summed(packed), summed(alone)
    assert (packed_rows == 0).sum() == manifest["sources"][0]["empty_rows"]
    assert (rows == 0).sum() == 3
    np.testing.assert_allclose(packed_total, total, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(packed_grads), jax.tree.leaves(grads), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(abs(b).max())))


def test_as_the_released_code_packed_them_examples_see_each_other(tmp_path: Path) -> None:
    assert abs(summed(table(tmp_path / "a", "lemur")[0])[0] - summed(table(tmp_path / "b", "none")[0])[0]) > 1e-3
