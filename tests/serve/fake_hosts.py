"""One process of an engine that spans several, without Ray: ``python -m tests.serve.fake_hosts leader|follower ...``.

Weights are those of a seed, which is the spec. The leader writes what it got, as JSON, one line for each thing; with
"then wait" it keeps a reply running until it is told otherwise by what happens to it.
"""

import dataclasses
import json
import os
import signal
import sys
import time
from typing import Any

import jax
import numpy as np

from lemur_ray.serve.compute import programs
from lemur_ray.serve.compute.devices import minimum_of_processes
from lemur_ray.serve.compute.lockstep import Group, follow
from lemur_ray.serve.compute.wire import FollowerListener, connect
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import HostWeights, random_weights
from lemur_ray.weights.param_slices import Index
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts
from tests.weights.whole_models import whole

CONFIG = dataclasses.replace(TINY, num_kv_heads=4, max_seq_len=2048)
OPTIONS = EngineOptions(max_slots=8, prefill_tiles=2, tensor_parallel=0)
SECRET = b"not a secret"
PATIENCE = {"shutdown_timeout_seconds": 5, "heartbeat_timeout_seconds": 30}


@dataclasses.dataclass(frozen=True)
class Seeded:
    source: HostWeights
    version: str


class Deadly(HostWeights):
    """Weights of seed 1 that kill their reader when they are read for the second time."""

    passes = 0

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        self.passes += label == "embed"
        if self.passes == 2 and label == "layers.down":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(label, index, dtype)


def load(spec: str) -> Seeded:
    if spec == "deadly":
        return Seeded(Deadly(whole(random_weights(CONFIG, 1)), CONFIG), "seed 1")
    return Seeded(random_weights(CONFIG, int(spec)), f"seed {spec}")


def requests() -> list[Generation]:
    """Greedy and drawn, with and without edits."""
    return [
        Generation(
            p,
            30,
            SamplingOptions(temperature=float(i % 2), seed=i, top_p=0.9, logit_bias=LogitBias(((9, float(i % 4)),))),
            logprobs=i == 5,
        )
        for i, p in enumerate(prompts(8, seed=1, high=120))
    ]


def answers(engine: Engine) -> dict[str, object]:
    """What an engine says: alone, together, after a cached prefix, about a prompt."""
    asked = requests()
    alone = [generate(engine, [request])[0] for request in asked[:4]]
    turn = Waiter(engine, Generation((*asked[3].prompt, *alone[3], 7, 8), 20, prompt_logprobs=True))
    end = turn.end()
    return {"alone": alone, "together": generate(engine, asked), "turn": turn.tokens, "cached": end.cached > 0}


def say(what: str, value: object) -> None:
    print(json.dumps([what, value]), flush=True)


def lead(followers: int, coordinator: str, then: str) -> None:
    exchange = FollowerListener("127.0.0.1", SECRET)
    say("address", exchange.address)
    lines = [exchange.next(120) for _ in range(followers)]
    jax.distributed.initialize(coordinator, followers + 1, 0, **PATIENCE)
    say("least", minimum_of_processes(5))
    group = Group(lines, "seed 0")
    engine = open_engine(load("0").source, OPTIONS, "seed 0", group).start()
    if then == "swap":
        running = Waiter(engine, Generation((5, 6, 7), 2000))
        running.next(60)
        engine.stage(load("1").source, "seed 1", ("deadly", "seed 1"))
        try:
            engine.commit("seed 1").result(60)
        except EngineClosed as error:
            say("lost", str(error))
        say("ended", [running.end().finish, engine.version])
        engine.close()
        return
    if then == "wait":
        running = Waiter(engine, long := Generation((5, 6, 7), 2000))
        assert running.next(60).finish is None
        say("running", True)
        begin = time.monotonic()
        while (event := running.end()).finish == "length":  # a fast machine comes to the end of one
            running = Waiter(engine, long)
        say("ended", [event.finish, time.monotonic() - begin])
        try:
            engine.submit(Generation((5,), 5), lambda _: None)
        except EngineClosed as error:
            say("refused", str(error))
        engine.close()
        say("closed", True)
        return
    say("answers", answers(engine))
    engine.stage(load("1").source, "seed 1", ("1", "seed 1"))
    engine.commit("seed 1").result(60)
    say("others", answers(engine))
    for what, spec, version in (("refused", "2", "seed 3"), ("failed", "nothing", "nothing")):
        try:
            engine.stage(load("2").source, version, (spec, version))
        except ValueError as error:
            say(what, str(error))
    say("still", generate(engine, requests()[:2]))
    say("devices", [jax.device_count(), jax.local_device_count(), engine.stats.recompiles_after_warmup])
    engine.close()
    group.close()


def obey(rank: int, followers: int, coordinator: str, port: int, spec: str) -> None:
    line = connect(("127.0.0.1", port), SECRET)
    jax.distributed.initialize(coordinator, followers + 1, rank, **PATIENCE)
    minimum_of_processes(5 - rank)
    follow(line, spec, OPTIONS, load)


if __name__ == "__main__":
    programs.MAX_SECOND_COPY_BYTES = 0  # as if the model was large
    role, *rest = sys.argv[1:]
    if role == "leader":
        lead(int(rest[0]), rest[1], "".join(rest[2:]))
    else:
        obey(int(rest[0]), int(rest[1]), rest[2], int(rest[3]), rest[4])
