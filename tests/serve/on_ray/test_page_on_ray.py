"""Key and chat page on Ray Serve, where the app lives under a prefix of its own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from lemur_ray.host.ports import free_port
from lemur_ray.serve.config import EngineOptions, ServeJob
from lemur_ray.serve.http.api_key import key_digest
from tests.serve.browser import chromium, found

pytestmark = pytest.mark.slow
KEY = "sk-on-ray"


@pytest.fixture(scope="module")
def url(ray_local: str) -> Iterator[str]:
    """Base URL of a model on a Serve that ran before it, and that therefore gives it a prefix."""
    from ray import serve

    from lemur_ray.serve.on_ray import deployments, serve_cluster

    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": free_port()})
    small = EngineOptions(max_slots=2, max_queue=2, prefill_tiles=1)
    yield deployments.serve_job(
        ServeJob(name="nano", num_cpus=0.5, engine=small), "random:nano", key_digest=key_digest(KEY)
    )
    serve_cluster.shutdown()
    serve.shutdown()


def test_a_key_closes_everything_but_the_page_and_what_watches_the_process(url: str) -> None:
    root = url.removesuffix("/v1")
    assert root.count("/") == 3
    assert [httpx.get(root + path, timeout=60).status_code for path in ("", "/", "/health", "/ready")] == [200] * 4
    answers = [httpx.get(root + path, timeout=60) for path in ("/v1/models", "/metrics", "/tokenizer_info")]
    assert [(a.status_code, a.json()["error"]["code"]) for a in answers] == [(401, "invalid_api_key")] * 3
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        assert [m.id for m in client.models.list()] == ["nano"]


@pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium")
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_page_talks_to_the_app_it_came_from(url: str, slash: str, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        page = browser.page(url.removesuffix("/v1") + slash)
        page.until("document.querySelector('dialog').open")
        page.type(KEY)
        page.key("Enter")
        page.until("document.querySelector('#model').value === 'nano'")
        page.value("settings.max_tokens = '20'; settings.seed = '1'; 0")
        page.type("hello")
        page.key("Enter")
        page.until("document.querySelector('.facts span') && !document.querySelector('.running')")
        assert "token" in page.text(".facts")
        assert not page.text(".error")
        assert page.complaints() == []
