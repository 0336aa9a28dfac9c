"""A model asked by handle, from the driver and from environment actors, without HTTP."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatRequest, ContextOverflow, Message, Sampling
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.recipes import get_recipe
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.agenda import Orders
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import Retries, run_orders
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.on_ray.handle import HandleSpec
from tests.rollout.toy import toy_task

OPENING = (Message("system", "Walk."), Message("user", "Go."))


@pytest.fixture(scope="module")
def served(ray_local: str) -> Iterator[HandleSpec]:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    options = EngineOptions(max_slots=4, max_queue=8, prefill_tiles=1)
    yield HandleSpec(deployments.serve_handle("random:nano", name="nano", num_cpus=0.5, options=options), "handle:nano")
    serve_cluster.shutdown()


def test_the_model_answers_turn_by_turn_and_says_when_a_conversation_is_too_long(served: HandleSpec):
    policy = served()
    sampling = Sampling(max_tokens=10, temperature=0.8, seed=7)
    first = policy.reply(ChatRequest(OPENING, sampling, "e"))
    assert 0 < len(first.token_ids) <= first.usage.completion_tokens <= 10
    talk = (*OPENING, Message("assistant", first.text), Message("user", "A wall."))
    second = policy.reply(ChatRequest(talk, sampling, "e"))
    assert second.usage.prompt_tokens > first.usage.prompt_tokens + len(first.token_ids)
    with pytest.raises(ContextOverflow):
        policy.reply(ChatRequest((Message("user", "x " * 5000),), sampling, "e"))


def test_environment_actors_play_with_it_and_never_load_jax(served: HandleSpec, tmp_path: Path):
    pool = RayPool(served, num_actors=2, episodes_per_actor=6)
    tasks = [toy_task(f"t{i}", length=3, max_turns=3) for i in range(12)]
    sampling = Sampling(max_tokens=6, temperature=1.0, seed=1)
    orders = Orders(tasks, epochs=1, policy="p", recipe="r", sampling=sampling, limits=EpisodeLimits())
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        episodes = run_orders(orders, pool, ledger, retries=Retries(), progress=progress, clock=time.monotonic)
    pool.close()
    assert len(episodes) == 12
    assert all(e.outcome.scored and e.attempts == 1 for e in episodes), [e.detail for e in episodes]
    assert all(step.completion_tokens > 0 for e in episodes for step in e.trajectory.steps)
    (version,) = {step.version for e in episodes for step in e.trajectory.steps}
    assert version.endswith("-random")
    code = "import sys, lemur_ray.serve.on_ray.handle; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_what_runs_says_how_long_its_context_is_and_counts_tokens(served: HandleSpec):
    from lemur_ray.serve.on_ray.attach import attach

    spec = attach(PolicySpec("handle", served.app_name), lambda: None)
    assert spec.context == get_recipe("nano").model.max_seq_len
    assert spec.count is not None
    assert spec.count("Wälk.") == 6, "its tokens are bytes"


@pytest.mark.slow
def test_what_the_command_line_names_is_served_and_asked_by_handle(served: HandleSpec):
    from lemur_ray.serve.on_ray import deployments

    make = deployments.serve_policy(
        PolicySpec("handle", "random:nano", label="handle:again", options=EndpointOptions(patience_s=30.0))
    )
    reply = make().reply(ChatRequest(OPENING, Sampling(max_tokens=4), "e"))
    assert len(reply.token_ids) <= 4
    assert make().name == "handle:again"


@pytest.mark.slow
def test_a_handle_asks_what_is_served_already_and_serves_nothing_more(served: HandleSpec):
    from ray import serve

    from lemur_ray.serve.on_ray import deployments
    from lemur_ray.serve.on_ray.attach import attach

    before = set(serve.status().applications)
    spec = attach(PolicySpec("handle", served.app_name), lambda: None)
    assert spec.application == served.app_name
    assert spec.label.startswith("handle:nano@")
    policy = deployments.serve_policy(spec)()
    reply = policy.reply(ChatRequest(OPENING, Sampling(max_tokens=4), "e"))
    assert spec.label == f"handle:nano@{reply.version}"
    assert set(serve.status().applications) == before
