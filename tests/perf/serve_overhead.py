"""What Ray Serve costs beside plain uvicorn: python tests/perf/serve_overhead.py [--model m110] [--rounds 3].

The same random model by the same job, ``--no-ray`` and on a private Ray, taking turns: seconds to the first token of a
lone streamed request, and CPU seconds of all processes behind the port for eight streams at once, what they use when
nobody asks taken off. Ids of the replies must be equal. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx
import numpy as np
import psutil
from serve_peers import ROOT, models

KINDS = {"uvicorn": ["--no-ray"], "serve": ["--num-cpus", "1"]}
LONE, STREAMS, NEW = 20, 8, 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(models()), default="m110")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, options.model)
        servers = {kind: _start(f"{folder}/model", flags) for kind, flags in KINDS.items()}
        try:
            found = asyncio.run(_measure(servers, options.rounds))
        finally:
            for process, _ in servers.values():
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    first = {kind: 1e3 * statistics.median(times) for kind, times in found["first"].items()}
    cpu = {kind: statistics.median(times) for kind, times in found["cpu"].items()}
    ratios = [a / b for a, b in zip(found["cpu"]["serve"], found["cpu"]["uvicorn"], strict=True)]
    print(f"first token {first['uvicorn']:.1f} ms under uvicorn, {first['serve']:.1f} ms on Ray Serve")
    print(
        f"{STREAMS} streams of {NEW} tokens: {cpu['uvicorn']:.2f} and {cpu['serve']:.2f} CPU-s, "
        f"{statistics.median(ratios):.3f}x ({min(ratios):.3f} to {max(ratios):.3f})"
    )
    idle = {kind: round(share, 3) for kind, share in found["idle"].items()}
    print(f"with nothing to do: {idle} of a core")
    summary = {"model": options.model, "first_ms": first, "cpu_s": cpu, "cpu_ratio": statistics.median(ratios)}
    print(json.dumps({**summary, "idle_cores": idle}))
    return 0


def _write(folder: str, model: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    from lemur_ray.model.llama import init_params
    from lemur_ray.text.tokenizer import Tokenizer
    from tests.weights.whole_models import write_model

    config = models()[model]
    write_model(init_params(config, 0), config, Tokenizer.bytes_only(), f"{folder}/model")


def _start(model: str, flags: list[str]) -> tuple[subprocess.Popen[str], str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    env.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(ROOT / "jobs" / "serve.py"), "--model", model, "--name", "m", *flags]
    command += ["--engine.max-slots", str(STREAMS), "--engine.context", "256"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


async def _measure(servers: dict[str, tuple[subprocess.Popen[str], str]], rounds: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"first": {k: [] for k in servers}, "cpu": {k: [] for k in servers}, "idle": {}}
    async with httpx.AsyncClient(timeout=120) as http:
        for kind, (process, _) in servers.items():
            begin, used = time.monotonic(), _cpu_s(process.pid)
            await asyncio.sleep(10)
            found["idle"][kind] = (_cpu_s(process.pid) - used) / (time.monotonic() - begin)
        for turn in range(rounds + 1):
            rng, ids = np.random.default_rng(turn), {}
            lone = rng.integers(10, 32000, (LONE, 32)).tolist()
            together = rng.integers(10, 32000, (STREAMS, 32)).tolist()
            for kind, (process, url) in servers.items():
                firsts = [(await _stream(http, url, prompt, 2))[0] for prompt in lone]
                begin, used = time.monotonic(), _cpu_s(process.pid)
                replies = await asyncio.gather(*(_stream(http, url, prompt, NEW) for prompt in together))
                used, wall = _cpu_s(process.pid) - used, time.monotonic() - begin
                ids[kind] = [reply for _, reply in replies]
                if turn:  # the first turn warms
                    found["first"][kind] += firsts
                    found["cpu"][kind].append(used - wall * found["idle"][kind])
            assert ids["serve"] == ids["uvicorn"], "other ids"
    return found


async def _stream(http: httpx.AsyncClient, url: str, prompt: list[int], new: int) -> tuple[float, list[int]]:
    """Seconds to the first token, and all of them."""
    body = {"model": "m", "prompt": prompt, "max_tokens": new, "temperature": 0, "stream": True}
    body |= {"return_token_ids": True, "logit_bias": {"2": -100}}
    begin, first, ids = time.monotonic(), 0.0, []
    async with http.stream("POST", f"{url}/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                first = first or time.monotonic() - begin
                ids += [i for choice in json.loads(line[6:])["choices"] for i in choice.get("token_ids") or []]
    return first, ids


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process and everything below it have used."""
    root, total = psutil.Process(pid), 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


if __name__ == "__main__":
    raise SystemExit(main())
