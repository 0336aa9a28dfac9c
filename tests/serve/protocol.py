"""What the tests of the protocol share: a request that is answered, and how an answer's parts are read."""

from typing import Any

import httpx

ASK: list[Any] = [{"role": "user", "content": "héllo"}]
CHAT: dict[str, Any] = {"model": "tiny", "messages": ASK, "temperature": 0, "max_tokens": 12}


def error(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which must have OpenAI's form and nothing else."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req_")
    fields: dict[str, Any] = body["error"]
    return fields


def metric(http: httpx.Client, name: str) -> float:
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[1])
