"""A server with a key: who does not bring it learns nothing, in OpenAI's words."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.endpoint_retries import PolicyUnreachable
from lemur_ray.agents.messages import ChatRequest, Message, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.serve.http.api_key import key_digest, server_key_digest
from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.text_engine import TextEngine
from tests.serve.protocol import CHAT, error

KEY = "sk-lemur-0123456789"


@pytest.fixture(scope="module")
def locked(served: TextEngine) -> Iterator[str]:
    """Base URL of a server that wants the key."""
    with running(served, close_engine=False, key_digest=key_digest(KEY)) as url:
        yield url


@pytest.fixture(scope="module")
def locked_http(locked: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=locked.removesuffix("/v1"), timeout=60) as http:
        yield http


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer wrong", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"Basic {KEY}"],
)
def test_without_the_key_every_other_page_is_a_401(locked_http: httpx.Client, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for method, path in (
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("POST", "/tokenize"),
        ("GET", "/v1/nothing"),
        ("GET", "//v1/models"),
        ("GET", "/health/x"),
        ("OPTIONS", "/v1/models"),
    ):
        answer = locked_http.request(method, path, headers=headers)
        assert (answer.status_code, error(answer)["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert KEY not in answer.text


def test_who_watches_over_the_process_needs_no_key(locked_http: httpx.Client) -> None:
    assert [locked_http.get(page).status_code for page in ("/health", "/ready")] == [200, 200]


def test_with_the_key_the_official_client_is_answered_and_without_it_has_its_own_error(locked: str) -> None:
    with openai.OpenAI(base_url=locked, api_key=KEY, max_retries=0) as client:
        assert client.chat.completions.create(**CHAT).choices[0].message.content
        chunks = list(client.chat.completions.create(**CHAT, stream=True))
        assert chunks[-1].choices[0].finish_reason
    with openai.OpenAI(base_url=locked, api_key="other", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(locked_http: httpx.Client, scheme: str) -> None:
    assert locked_http.get("/v1/models", headers={"authorization": f"{scheme} {KEY}"}).status_code == 200


def test_without_a_key_of_its_own_a_server_takes_any_and_none(http: httpx.Client) -> None:
    for headers in ({}, {"authorization": "Bearer"}, {"authorization": "Bearer any"}):
        assert http.get("/v1/models", headers=headers).status_code == 200


def test_our_own_policy_sends_the_key_it_is_told(locked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ChatRequest((Message("user", "Go."),), Sampling(max_tokens=3, seed=1))
    monkeypatch.setenv("THEIR_KEY", KEY)
    named = EndpointOptions(Key.of("THEIR_KEY", "--policy-key-env", locked), patience_s=60)
    policy = OpenAIPolicy(locked, "tiny", options=named)
    assert policy.served_models() == {"tiny": "tiny-0"}
    assert policy.reply(request).text
    policy.close()
    wrong = OpenAIPolicy(locked, "tiny", options=EndpointOptions(Key("other")), patience_s=60)
    with pytest.raises(PolicyUnreachable, match="API key"):
        wrong.reply(request)
    wrong.close()


@pytest.mark.parametrize("key", ["two words", "schlüssel", "line\n", "\x7f"])
def test_a_key_that_no_client_could_send_is_refused_at_the_start(key: str) -> None:
    with pytest.raises(ValueError, match="choose another"):
        key_digest(key)


@pytest.mark.parametrize(
    ("host", "key", "warned"),
    [
        ("0.0.0.0", "", True),
        ("::", "", True),
        ("192.168.1.7", "", True),
        ("head.example.org", "", True),
        ("", "", True),
        ("0.0.0.0", KEY, False),
        ("127.0.0.1", "", False),
        ("127.0.1.1", "", False),
        ("::1", "", False),
        ("localhost", "", False),
    ],
)
def test_a_server_that_others_can_reach_without_a_key_says_so(
    host: str, key: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert server_key_digest(host, key) == key_digest(key)
    assert [host in r.message and "no key is asked for: set LEMUR_API_KEY" in r.message for r in caplog.records] == [
        True
    ] * warned
