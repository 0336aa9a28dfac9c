"""The chat page as a client without a browser sees it: one file, nothing from elsewhere, a strict policy."""

import asyncio
import base64
import hashlib
import re

import httpx
import pytest

from lemur_ray.serve.http.api_key import key_digest
from lemur_ray.serve.http.routes import build_app
from lemur_ray.serve.text_engine import TextEngine
from tests.serve.protocol import error


def test_the_root_is_one_page_that_fetches_nothing_from_elsewhere(http: httpx.Client) -> None:
    answer = http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-request-id"].startswith("req_")
    fetched = re.findall(r"""(?:src|href)=["']([^"']*)|@import|url\(""", answer.text)
    assert fetched == ["data:,"]
    assert len(answer.content) < 64 * 1024


def test_its_policy_allows_its_own_script_and_style_and_no_markup_from_strings(http: httpx.Client) -> None:
    answer = http.get("/")
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, flags=re.DOTALL)
        assert (
            policy[f"{tag}-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
        )
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style="):
        assert way not in answer.text, f"the page has {way}"


def test_it_answers_head_and_leaves_other_methods_and_paths_alone(http: httpx.Client) -> None:
    head = http.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(http.get("/").content))
    assert error(http.post("/"))["type"] == "invalid_request_error"
    assert error(http.get("/page.html"))["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/deep/er", "/deep/er/"])
def test_under_a_prefix_and_a_key_the_page_is_open_and_what_is_behind_it_is_not(served: TextEngine, path: str) -> None:
    transport = httpx.ASGITransport(build_app(served, key_digest("secret")), root_path="/deep/er")

    async def get(where: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            return await http.get(where)

    assert asyncio.run(get(path)).headers["content-type"].startswith("text/html")
    assert asyncio.run(get("/deep/er/health")).status_code == 200
    assert asyncio.run(get("/deep/er/v1/models")).status_code == 401
