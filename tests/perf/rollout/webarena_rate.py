"""WebArena's environment in numbers: memory of contexts, an observation of 772 nodes, a step. One JSON line each.

``python -m tests.perf.rollout.webarena_rate``. Needs Chromium and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any

from envs.webarena.browser.capture import capture
from envs.webarena.browser.host import close_shared, shared_host
from envs.webarena.env import WebEnv
from tests.envs.webarena import small_site
from tests.envs.webarena.processes import cpu_s, family, memory_bytes
from tests.envs.webarena.small_site import SmallSite, SmallSites, record

QUICK: dict[str, Any] = {"wait_s": 0.0, "settles_s": 0.0}
NODES_772 = "<ul>" + "".join(f"<li><a href='/{n}'>Item {n}</a> ${n}.99 <button>Add</button></li>" for n in range(110))
REPEATS = 15


def main() -> None:
    small_site.PAGES = {**small_site.PAGES, "/large": NODES_772}  # type: ignore[misc]
    site = SmallSite()
    sites = SmallSites(site)
    envs = []
    for number in range(1, 5):
        env = WebEnv(sites)
        env.reset(options={"record": record(number, "/large"), **QUICK})
        envs.append(env)
        pids = [pid for pid in family(os.getpid()) if pid != os.getpid()]
        print(json.dumps({"contexts": number, "mb_pss": round(memory_bytes(pids) / 1e6)}), flush=True)
    env = envs[0]
    in_view, play = len(env._running().seen.elements), env._running()

    async def tree() -> int:
        nodes, _, _ = await capture(await play.session.protocol(await play.session.page()))
        return len(nodes)

    nodes = shared_host().run(tree(), 60, "counting nodes")
    before, began = cpu_s(family(os.getpid())), time.monotonic()
    for _ in range(REPEATS):
        env._running().look()
    cpu, wall = cpu_s(family(os.getpid())) - before, time.monotonic() - began
    said = {
        "nodes": nodes,
        "elements_in_view": in_view,
        "observation_cpu_s": cpu / REPEATS,
        "observation_wall_s": wall / REPEATS,
    }
    print(json.dumps({name: round(number, 4) for name, number in said.items()}), flush=True)
    times = []
    env.reset(options={"record": record(1), **QUICK})
    for number in range(REPEATS):
        began = time.monotonic()
        env.step(f"```scroll [{'up' if number % 2 else 'down'}]```")
        times.append(time.monotonic() - began)
    print(json.dumps({"step_s_median": round(statistics.median(times), 4)}), flush=True)
    for one in envs:
        one.close()
    site.close()
    print(json.dumps({"launches": shared_host().launches}))
    close_shared()


if __name__ == "__main__":
    main()
