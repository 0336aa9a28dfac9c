"""Which episodes become training rows, with which weights."""

import numpy as np
import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.improve.config import BadInput
from lemur_ray.improve.training_rows import Example, batch_order, digest, examples_of, rows_of
from lemur_ray.text.chat import encode_chat
from lemur_ray.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.bytes_only()


def episode(task: str, won: bool, replies: str = "ab", epoch: int = 0, outcome: Outcome | None = None) -> Episode:
    """An episode of one-letter replies; capital letters are refused."""
    steps = tuple(Step(one, one, "ok", 0.0, one.islower()) for one in replies)
    outcome = outcome or (Outcome.SOLVED if won else Outcome.FAILED)
    key = EpisodeKey("b", task, "p", "r", epoch)
    score = float(won) if outcome.scored else None
    return Episode(key, "", outcome, score, 1, Trajectory((Message("user", "go"),), steps))


def replies(examples: list[Example]) -> list[str]:
    return ["".join(m.content for m in e.messages if m.role == "assistant") for e in examples]


def test_wins_takes_the_shortest_won_episodes_of_each_task_and_weighs_rarely_won_tasks_more() -> None:
    episodes = [episode("1", True, "abc"), episode("2", False), episode("3", True)]
    episodes += [episode("1", True, "ab", 1), episode("2", False, epoch=1), episode("3", False, epoch=1)]
    examples = examples_of(episodes, "wins", "123")
    assert replies(examples) == ["ab", "ab"]
    assert [example.weight for example in examples] == pytest.approx([0.1, 0.6])
    assert replies(examples_of(episodes, "wins", "123", per_task=2)) == ["ab", "abc", "ab"]


def test_wins_does_not_train_refused_replies_and_missing_episodes_do_not_count() -> None:
    episodes = [episode("1", True, "aBc"), episode("1", False, epoch=1, outcome=Outcome.ENV_ERROR)]
    (example,) = examples_of(episodes, "wins", "1")
    assert [m.weight for m in example.messages if m.role == "assistant"] == [1, 0, 1]
    assert example.weight == pytest.approx(0.1)


def test_a_teacher_s_lost_episodes_are_trained_too() -> None:
    assert replies(examples_of([episode("1", False, "ab"), episode("2", True, "c")], "teacher", "12")) == ["ab", "c"]


@pytest.mark.parametrize("algorithm", ["teacher", "wins"])
def test_a_held_out_task_is_refused_by_name(algorithm: str) -> None:
    with pytest.raises(BadInput, match="task heldout-7 of b is held out"):
        examples_of([episode("1", True), episode("heldout-7", True)], algorithm, ["1"])  # type: ignore[arg-type]


def test_rows_hold_every_example_with_the_weight_of_its_trained_tokens() -> None:
    examples = examples_of([episode("1", True, "aBc"), episode("2", True, "def")], "teacher", "12")
    examples = [Example(example.messages, weight) for example, weight in zip(examples, (1.0, 0.25), strict=True)]
    rows = rows_of(examples, TOKENIZER, 256)
    assert rows is not None
    assert rows["tokens"].shape == rows["loss_weights"].shape
    expected = 0.0
    for example in examples:
        ids, trained = encode_chat(TOKENIZER, example.messages)
        expected += example.weight * sum(trained)
        weights = {float(w) for w in np.unique(rows["loss_weights"])}
        assert example.weight in weights
        place = [list(row[: len(ids)]) == ids or list(row[-len(ids) :]) == ids for row in rows["tokens"]]
        assert any(place) or ids in [list(row[i : i + len(ids)]) for row in rows["tokens"] for i in range(len(row))]
    assert rows["loss_weights"].sum() == pytest.approx(expected)


def test_a_conversation_without_a_trained_token_gives_no_row() -> None:
    nothing = Example((Message("user", "go"), Message("assistant", "no", weight=0)))
    assert rows_of([nothing], TOKENIZER, 128) is None
    assert digest(None) == ""


def test_every_pass_over_the_rows_is_complete_before_the_next_begins() -> None:
    order = batch_order(5, updates=4, rows_per_step=3, seed=(0, 1))
    assert order.shape == (4, 3)
    assert sorted(order.ravel()[:5]) == sorted(order.ravel()[5:10]) == list(range(5))
    assert not np.array_equal(order, batch_order(5, updates=4, rows_per_step=3, seed=(0, 2)))
