"""The clipped surrogate against autodiff, a bandit of two commands that every algorithm learns, and log-probabilities
of server and learner in float64."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lemur_ray.agents.messages import Trace
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.config import OptimizerConfig, Recipe
from lemur_ray.improve.groups import group_batch, round_batches
from lemur_ray.improve.learner import Committed, Learner, LearnerSpec, Programs
from lemur_ray.improve.prepare import prepare
from lemur_ray.improve.surrogate import HIGHEST_RATIO, LOWEST_RATIO, ratios
from lemur_ray.improve.traces import traced_turns
from lemur_ray.model.llama import hidden_states, init_params, output_head, unstack_layers
from lemur_ray.recipes.nano_improve import RECIPE
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.train.step import execution, gradients, token_losses
from tests.improve.capital_game import MODEL, SEQ_LEN, config_of
from tests.improve.in_process import InProcess
from tests.model.tiny_batches import packed_batch
from tests.serve.engine.test_token_logprobs import scored
from tests.serve.tiny import prompts

DRAWS, UPDATES, PROMPT = 64, 30, (1, 2, 3)
BANDIT = dataclasses.replace(
    RECIPE,
    model=MODEL,
    data=dataclasses.replace(RECIPE.data, seq_len=8),
    optimizer=OptimizerConfig(name="adamw", peak_lr=1e-2, warmup_steps=1, weight_decay=0.0, clip_norm=1.0),
    train=dataclasses.replace(RECIPE.train, steps=UPDATES, rows_per_step=DRAWS, seed=5),
)
BAD_TRACES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "of other weights": ("behaviour", lambda logprobs: logprobs * np.float32(1.001)),
    "no numbers": ("behaviour", lambda logprobs: logprobs * np.float32("nan")),
    "ids that the model does not have": ("targets", lambda ids: ids + MODEL.vocab_size),
}
"""Field of the rows and what is done to it."""


def surrogate(params: Any, batch: dict[str, jax.Array], recipe: Recipe) -> jax.Array:
    """The sum in the definition of the loss, from logits of all ids."""
    how = execution(recipe)
    x = hidden_states(
        unstack_layers(params), recipe.model, batch["tokens"], batch["segment_ids"], batch["positions"], how.forward
    )
    logits = (x @ output_head(params)).astype(jnp.float32)
    targets = jnp.take_along_axis(logits, batch["targets"][..., None], -1)[..., 0]
    ratio = jnp.exp(jnp.where(batch["drawn"] > 0, targets - jax.nn.logsumexp(logits, -1) - batch["behaviour"], 0.0))
    clipped = jnp.clip(ratio, LOWEST_RATIO, HIGHEST_RATIO)
    return -jnp.sum(batch["drawn"] * jnp.minimum(ratio * batch["advantage"], clipped * batch["advantage"]))


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.3], ids=["at r = 1", "with other behaviour"])
def test_the_gradient_of_the_clipped_surrogate_is_that_of_weighted_losses(spread: float) -> None:
    recipe = dataclasses.replace(BANDIT, data=dataclasses.replace(BANDIT.data, seq_len=32))
    random, params = np.random.default_rng(0), init_params(MODEL, 1)
    batch = dict(packed_batch([[20, 9], [31], [5, 5, 5, 5]], MODEL.vocab_size, length=32, seed=0))
    shape = batch["tokens"].shape
    drawn = np.asarray(batch["loss_weights"]) * (random.random(shape) < 0.5)
    advantage = (random.normal(size=shape) * drawn).astype(np.float32)
    learner = -np.asarray(token_losses(params, batch, recipe, execution(recipe)))
    behaviour = (learner + spread * random.normal(size=shape)).astype(np.float32) * drawn.astype(np.float32)
    found = ratios(learner, behaviour, advantage, drawn)
    more = {"drawn": jnp.array(drawn), "advantage": jnp.array(advantage), "behaviour": jnp.array(behaviour)}
    expected = jax.grad(surrogate)(params, {**batch, **more}, recipe)
    _, actual, _ = gradients(params, {**batch, "loss_weights": jnp.array(found.weights)}, recipe, execution(recipe))
    difference = optax.tree.norm(jax.tree.map(jnp.subtract, expected, actual)) / optax.tree.norm(expected)
    assert float(difference) <= 1e-5
    if spread:
        assert 0.1 < found.clipped < 0.5
        assert found.k3 > 0.01
        # KL of the sampler from the learner is that of what the sampler draws: mean of exp(d) - 1 - d.
        d = (learner - behaviour)[drawn > 0].astype(float)
        assert found.k3 == pytest.approx(float((np.exp(d) - 1 - d).mean()), rel=1e-6)
        assert (found.equal, found.mean > 0.1) == (0.0, True)
    else:
        np.testing.assert_array_equal(found.weights, advantage)
        assert (found.largest, found.equal, found.clipped) == (0.0, 1.0, 0.0)


@pytest.fixture
def bandit(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Learner:
    """A learner that starts from a random model and keeps its weights in memory."""
    learner = Learner(LearnerSpec(BANDIT, str(tmp_path / "run"), str(start)))
    learner.open()
    monkeypatch.setattr(Learner, "_commit", lambda self, step, numbers: Committed(step, "", numbers))
    return learner


@jax.jit
def next_id(params: Any) -> jax.Array:
    """Log-probabilities of the id after the prompt."""
    tokens = jnp.array([PROMPT])
    x = hidden_states(
        unstack_layers(params), MODEL, tokens, jnp.ones_like(tokens), jnp.arange(3)[None], execution(BANDIT).forward
    )
    return jax.nn.log_softmax((x @ output_head(params))[0, -1])


def play(learner: Learner, algorithm: Any, number: int, deal: tuple[int, int] | None = None) -> tuple[Any, float]:
    """Rows of a round of the bandit, and its share of right commands: an odd id is "right", the others "left"."""
    logprobs = np.asarray(next_id(learner._state.params))
    probabilities = np.exp(logprobs.astype(float))
    drawn = np.random.default_rng(number).choice(len(logprobs), DRAWS, p=probabilities / probabilities.sum())
    episodes, traces = [], {}
    for epoch, token in enumerate(drawn.tolist()):
        right = bool(token % 2)
        step = Step(str(token), "right" if right else "left", "", float(right), True)
        key, outcome = EpisodeKey("b", f"{epoch % 8}", "p", "r", epoch), Outcome.SOLVED if right else Outcome.FAILED
        episodes.append(Episode(key, "", outcome, float(right), 1, Trajectory((), (step,))))
        traces[str(key)] = traced_turns([Trace(PROMPT, (token,), (float(logprobs[token]),), "s")])
    batch = group_batch(episodes, traces, algorithm, [str(task) for task in range(8)], 0, 8, deal)
    return batch.rows, float(probabilities[1::2].sum())


def learn(learner: Learner, algorithm: Any, deal: Callable[[int], tuple[int, int] | None]) -> list[float]:
    shares = []
    for number in range(1, UPDATES + 1):
        rows, share = play(learner, algorithm, number, deal(number))
        shares.append(share)
        if rows is not None:
            learner.train(number, rows, round_batches(len(rows["tokens"]), 1, DRAWS, (0, number)))
    return shares


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rloo", "grpo", "gigpo", "state"])
def test_a_bandit_of_two_commands_is_learned_in_thirty_updates(bandit: Learner, algorithm: str) -> None:
    shares = learn(bandit, algorithm, lambda number: None)
    assert 0.3 < shares[0] < 0.7
    assert shares[-1] >= 0.95


@pytest.mark.slow
def test_with_rewards_dealt_at_random_the_bandit_is_not_learned(bandit: Learner) -> None:
    shares = learn(bandit, "rloo", lambda number: (0, number))
    assert max(shares) < 0.8


def test_updates_are_divided_by_the_number_of_drawn_ids_and_those_without_rows_change_nothing(bandit: Learner) -> None:
    rows, _ = play(bandit, "rloo", 1)
    rows["loss_weights"] -= np.float32(0.5) * (rows["drawn"] > 0)  # lost episodes outweigh: their sum is negative
    order = round_batches(len(rows["tokens"]), 1, DRAWS, (0, 1))
    numbers = bandit.train(1, rows, np.concatenate([order, np.full_like(order, -1)])).numbers
    assert rows["loss_weights"].sum() < 0
    assert numbers["grad_norm"] < 10, "of the size of a mean, not of a sum divided by 1e-6"
    assert (numbers["updates"], numbers["empty"], numbers["skipped"]) == (2, 1, 0)


def test_a_sampler_with_other_weights_than_the_learner_stops_the_run(bandit: Learner) -> None:
    rows, _ = play(bandit, "rloo", 1)
    order = round_batches(len(rows["tokens"]), 1, DRAWS, (0, 1))
    numbers = bandit.train(1, rows, order).numbers
    assert numbers["mismatch_mean"] <= 2e-6
    assert 0 < numbers["grad_norm"] < 10, "the sum is divided by the number of drawn ids, not by that of the weights"
    assert abs(numbers["loss"]) < 10
    assert (numbers["clipped"], numbers["updates"]) == (0.0, 1)
    for field, change in BAD_TRACES.values():
        rows, _ = play(bandit, "rloo", 2)
        rows[field] = change(rows[field])
        with pytest.raises(TrainingStopped, match="round 2: log-probabilities of the server and of the learner differ"):
            bandit.train(2, rows, order)


def magnified(seed: int) -> Any:
    """Random parameters with four times the usual matrices and ten times the usual head, which magnify
    rounding."""
    params = init_params(MODEL, seed)
    layers = {name: w * 4 if w.ndim == 3 else w for name, w in params["layers"].items()}
    return {**params, "layers": layers, "head": params["head"] * 10}


def largest_difference(engine: Engine, programs: Programs, params: Any) -> float:
    """Largest difference of the log-probabilities of prompts and drawn texts between a server and a learner."""
    largest = []
    for number, prompt in enumerate(prompts(8, seed=1, low=2, high=100)):
        drawn, own, of_prompt = scored(engine, prompt, SEQ_LEN - 100, temperature=1.0, seed=number)
        ids = np.zeros((1, SEQ_LEN + 1), np.int32)
        ids[0, : len(prompt) + len(drawn)] = *prompt, *drawn
        ones, positions = np.ones((1, SEQ_LEN), np.int32), np.arange(SEQ_LEN, dtype=np.int32)[None]
        batch = {"tokens": ids[:, :-1], "targets": ids[:, 1:], "segment_ids": ones, "positions": positions}
        logprobs = programs.logprobs(params, {**batch, "loss_weights": ones.astype(np.float32)})[0]
        served = np.concatenate([of_prompt.logprob[1:], own.logprob])
        largest.append(np.abs(served - logprobs[: len(served)]).max())
        assert logprobs.dtype == served.dtype == np.float32
    return float(max(largest))


@pytest.mark.slow
def test_server_and_learner_agree_in_float64(start: Path, tmp_path: Path) -> None:
    prepared = prepare(config_of(start, tmp_path / "run", float64=True))
    prepared.open_folder()
    with InProcess(prepared.learner, EngineOptions(max_slots=2, cache_bytes=2**24, prefill_tiles=1)) as backend:
        backend.open()
        learner = backend._learner
        for seed in range(3):
            learner._state = dataclasses.replace(learner._state, params=magnified(seed))
            engine = backend.serve(learner._commit(1 + seed, {})).policy().engine.engine
            assert largest_difference(engine, learner._programs, learner._state.params) <= 1e-5
        rounded = Programs(prepared.learner.recipe, learner._mesh)
        assert largest_difference(engine, rounded, learner._state.params) > 1e-5, "one side in float32 is not noticed"
    assert jnp.zeros(1).dtype == "float32", "the number format of the process has changed"


def test_float64_is_part_of_a_run_and_for_weights_that_are_not_rounded(start: Path, tmp_path: Path) -> None:
    config = config_of(start, tmp_path / "run")
    usual, wide = (prepare(dataclasses.replace(config, float64=wide)).learner for wide in (False, True))
    assert ("float64" in usual.described["improve"], wide.described["improve"]["float64"]) == (False, True)
    assert (usual.float64, wide.float64) == (False, True)
    for given in ({"dtype": "bfloat16"}, {"quantization": "int8"}):
        with pytest.raises(ValueError, match="expected float32 and none"):
            EngineOptions(float64=True, **given)  # type: ignore[arg-type]
