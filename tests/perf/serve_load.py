"""Load with everything that clients do wrong: python tests/perf/serve_load.py [--clients 200] [--seconds 300].

A server of the nano model under uvicorn, in a process of its own, and clients that stream, wait, score, cancel in
mid-stream, hang up, send prompts that are too long, garbage and unknown models, all at random. At the end every request
must have been answered or refused in OpenAI's form, nothing may be held, and memory must not have grown. The last line
is JSON; the exit status is 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
REFUSALS = {400: ("context_length_exceeded", "invalid_json"), 404: ("model_not_found",), 429: ("rate_limit_exceeded",)}


async def client(http: httpx.AsyncClient, draw: random.Random, until: float, seen: Counter[str]) -> None:
    """One client, request after request."""
    header = [draw.randrange(10, 260) for _ in range(60)]
    while time.monotonic() < until:
        kind = draw.choices(
            ("whole", "stream", "cancel", "hang up", "score", "long", "garbage", "unknown"),
            (30, 20, 15, 10, 10, 5, 5, 5),
        )[0]
        prompt = [*header[: draw.randrange(60)], *(draw.randrange(10, 260) for _ in range(draw.randrange(1, 80)))]
        body: dict[str, Any] = {"model": "nano", "prompt": prompt, "max_tokens": draw.randrange(1, 120)}
        body |= {"seed": draw.randrange(99), "temperature": draw.choice((0, 1)), "stream": kind in ("stream", "cancel")}
        if kind == "score":
            body |= {"echo": True, "logprobs": 1, "max_tokens": 1}
        if kind == "long":
            body["prompt"] = prompt * 500
        if kind == "unknown":
            body["model"] = "another"
        content = b"{" if kind == "garbage" else json.dumps(body).encode()
        try:
            seen[f"{kind}: {await asked(http, kind, content, draw)}"] += 1
        except (httpx.HTTPError, ValueError, KeyError, AssertionError) as error:
            seen[f"WRONG {kind}: {type(error).__name__} {error}"] += 1


async def asked(http: httpx.AsyncClient, kind: str, content: bytes, draw: random.Random) -> str:
    """What came of one request. Raises AssertionError for an answer that is none."""
    if kind == "hang up":
        try:
            await http.post("/completions", content=content, timeout=httpx.Timeout(60, read=draw.random() / 5))
        except httpx.ReadTimeout:
            return "gone"
        return "answered"
    async with http.stream("POST", "/completions", content=content) as answer:
        if answer.status_code != 200:
            error = json.loads(await answer.aread())["error"]
            assert error["code"] in REFUSALS.get(answer.status_code, ()), f"{answer.status_code} {error}"
            assert answer.status_code != 429 or int(answer.headers["retry-after"]) > 0
            if answer.status_code == 429:
                await asyncio.sleep(draw.random())
            return str(answer.status_code)
        if kind in ("stream", "cancel"):
            left, last = draw.randrange(1, 20) if kind == "cancel" else -1, ""
            async for line in answer.aiter_lines():
                left -= bool(line)
                if left == 0:
                    return "cancelled"
                last = line or last
            assert last == "data: [DONE]", last
            return "whole"
        whole = json.loads(await answer.aread())
        assert whole["choices"][0]["finish_reason"] in ("stop", "length")
        return "200"


async def load(url: str, pid: int, clients: int, seconds: float, seed: int) -> tuple[Counter[str], list[int]]:
    """Outcomes, and the server's memory in MB every few seconds."""
    seen: Counter[str] = Counter()
    until, memory = time.monotonic() + seconds, []
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        tasks = [asyncio.create_task(client(http, random.Random(f"{seed} {i}"), until, seen)) for i in range(clients)]
        while time.monotonic() < until:
            await asyncio.sleep(min(5, seconds / 20))
            status = Path(f"/proc/{pid}/status").read_text()
            memory.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024)  # type: ignore[index]
        await asyncio.gather(*tasks)
    return seen, memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    command = [sys.executable, str(ROOT / "jobs" / "serve.py"), "--model", "random:nano", "--name", "nano", "--no-ray"]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen([*command, "--engine.max-queue", "100"], stdout=subprocess.PIPE, text=True, env=env)
    assert server.stdout is not None
    url = server.stdout.readline().split()[-1]
    try:
        seen, memory = asyncio.run(load(url, server.pid, options.clients, options.seconds, options.seed))
        deadline, gauges = time.monotonic() + 30, {"": 1.0}
        while any(gauges.values()) and time.monotonic() < deadline:
            page = httpx.get(f"{url.removesuffix('/v1')}/metrics").text
            gauges = {n: float(re.search(rf"^lemur_{n} (\S+)", page, re.M)[1]) for n in GAUGES}  # type: ignore[index]
            time.sleep(0.2)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    settled = memory[len(memory) // 4]
    for outcome, count in sorted(seen.items()):
        print(f"{count:7d}  {outcome}")
    wrong = sum(count for outcome, count in seen.items() if outcome.startswith("WRONG"))
    summary = {
        "requests": sum(seen.values()), "wrong": wrong, "left": gauges, "exit": server.returncode,
        "memory_mb_after_a_quarter": settled, "memory_mb_at_the_end": memory[-1],
    }  # fmt: skip
    print(json.dumps(summary))
    return int(bool(wrong or any(gauges.values()) or server.returncode or memory[-1] > 1.05 * settled))


GAUGES = ("active", "queued", "blocks_held")

if __name__ == "__main__":
    raise SystemExit(main())
