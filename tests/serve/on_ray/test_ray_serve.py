"""The same app on Ray Serve: a replica that loads the model itself, reached through Serve's proxy."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from lemur_ray.serve.config import EngineOptions
from tests.serve.tiny import poll

OPTIONS = EngineOptions(max_slots=2, max_queue=2, prefill_tiles=1)
# As long as a reply can be: its end tokens are never drawn.
LONG = {"model": "nano", "prompt": [5], "max_tokens": 1000, "logit_bias": {"2": -100, "4": -100}}


@pytest.fixture(scope="module")
def url(ray_local: str) -> Iterator[str]:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    yield deployments.serve_model("random:nano", name="nano", num_cpus=0.5, options=OPTIONS)
    serve_cluster.shutdown()


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
        deployments.serve_model("/nowhere")
    assert http.get("/ready").status_code == 200


def test_serve_cannot_listen_on_two_ports(url: str) -> None:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    with pytest.raises(serve_cluster.CannotServe, match="listens on port"):
        deployments.serve_model("random:nano", port=1)
