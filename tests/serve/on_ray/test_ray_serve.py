"""The same app on Ray Serve: replicas that load a model themselves, reached through Serve's proxy and by handle."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatRequest, ContextOverflow, Message, Sampling
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.recipes import get_recipe
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.actors.pool import PoolLimits
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.serve.config import EngineOptions, ServeJob
from lemur_ray.serve.on_ray.handle import HandleSpec
from tests.rollout.toy import toy_task
from tests.serve.tiny import poll

OPTIONS = EngineOptions(max_slots=2, max_queue=2, prefill_tiles=1)
# As long as a reply can be: its end tokens are never drawn.
LONG = {"model": "nano", "prompt": [5], "max_tokens": 1000, "logit_bias": {"2": -100, "4": -100}}
OPENING = (Message("system", "Walk."), Message("user", "Go."))


@pytest.fixture(scope="module")
def ray_serve(ray_local: str) -> Iterator[None]:
    """Whatever runs on Ray Serve ends with this file."""
    yield
    from lemur_ray.serve.on_ray import serve_cluster

    serve_cluster.shutdown()


@pytest.fixture(scope="module")
def url(ray_serve: None) -> str:
    from lemur_ray.serve.on_ray import deployments

    return deployments.serve_job(ServeJob(name="nano", num_cpus=0.5, engine=OPTIONS), "random:nano")


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as http:
        yield http


def test_the_official_client_gets_the_same_text_whole_and_streamed(url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        assert [m.id for m in client.models.list()] == ["nano"]
        prompt, settings = [9, 8, 7], {"model": "nano", "max_tokens": 40, "temperature": 0.8, "seed": 3}
        whole = client.completions.create(prompt=prompt, **settings)  # type: ignore[call-overload]
        chunks = client.completions.create(prompt=prompt, stream=True, **settings)  # type: ignore[call-overload]
        assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
        assert whole.usage.completion_tokens > 0
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(prompt="x" * 1100, **settings)  # type: ignore[call-overload]
        assert refused.value.code == "context_length_exceeded"


def test_errors_keep_their_form_behind_the_proxy(http: httpx.Client) -> None:
    assert http.get("/v1/nothing").json()["error"]["type"] == "invalid_request_error"
    assert http.post("/v1/completions", content=b"{").status_code == 400
    assert http.get("/health").headers["x-request-id"]


def test_the_engine_answers_when_there_are_too_many_requests(http: httpx.Client) -> None:
    body = {**LONG, "temperature": 1.0, "seed": 1}
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: http.post("/v1/completions", json=body), range(24)))
    assert {a.status_code for a in answers} == {200, 429}
    assert all(int(a.headers["retry-after"]) >= 1 for a in answers if a.status_code == 429)


def test_a_client_that_goes_away_is_noticed_behind_the_proxy(http: httpx.Client) -> None:
    def active() -> bool:
        return "lemur_active 0\n" not in http.get("/metrics").text

    poll(lambda: not active(), "the engine is idle")
    # Four on two slots: however fast the machine is, the last two are not over when the client goes away.
    body = {**LONG, "n": 4, "temperature": 2.0, "seed": 4, "stream": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        assert next(answer.iter_lines()).startswith("data:")
    poll(lambda: not active(), "the slots are free")
    assert 'lemur_finished_total{reason="cancelled"}' in http.get("/metrics").text


def test_a_model_that_cannot_be_loaded_says_so_and_leaves_the_other_alone(url: str, http: httpx.Client) -> None:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    with pytest.raises(serve_cluster.CannotServe, match="no model at /nowhere"):
        deployments.serve_job(ServeJob(), "/nowhere")
    assert http.get("/ready").status_code == 200


def test_serve_cannot_listen_on_two_ports(url: str) -> None:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    with pytest.raises(serve_cluster.CannotServe, match="listens on port"):
        deployments.serve_job(ServeJob(port=1), "random:nano")


@pytest.fixture(scope="module")
def served(ray_serve: None) -> HandleSpec:
    """Asked from the driver and from environment actors, without HTTP."""
    from lemur_ray.serve.on_ray import deployments

    options = EngineOptions(max_slots=4, max_queue=8, prefill_tiles=1)
    app_name = deployments.serve_handle(ServeJob(name="nano", num_cpus=0.5, engine=options), "random:nano")
    return HandleSpec(app_name, "handle:nano")


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
    other = served()  # as each round of play makes one in each of its processes
    other.reply(ChatRequest(OPENING, sampling, "e"))
    assert other._ask._handle is policy._ask._handle, "they share one connection"  # type: ignore[attr-defined]


def test_environment_actors_play_with_it_and_never_load_jax(served: HandleSpec, tmp_path: Path):
    pool = RayPool(served, PoolLimits(num_actors=2, episodes_per_actor=6))
    tasks = [toy_task(f"t{i}", length=3, max_turns=3) for i in range(12)]
    sampling = Sampling(max_tokens=6, temperature=1.0, seed=1)
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=sampling, limits=EpisodeLimits())
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        episodes = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
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
