"""One process of an engine that spans several, without Ray: ``python -m tests.serve.fake_hosts leader|follower ...``.

Weights are those of a seed, which is the spec. The leader writes what it got, as JSON, one line for each thing; with
"then wait" it keeps a reply running until it is told otherwise by what happens to it.
"""

import dataclasses
import json
import sys
import time

import jax

from lemur_ray.serve.compute.lockstep import Group, follow
from lemur_ray.serve.compute.wire import FollowerListener, connect
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import HostWeights, random_weights
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts

CONFIG = dataclasses.replace(TINY, num_kv_heads=4, max_seq_len=2048)
OPTIONS = EngineOptions(max_slots=8, prefill_tiles=2, tensor_parallel=0)
SECRET = b"not a secret"
PATIENCE = {"shutdown_timeout_seconds": 5, "heartbeat_timeout_seconds": 30}


@dataclasses.dataclass(frozen=True)
class Seeded:
    source: HostWeights
    version: str


def load(spec: str) -> Seeded:
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


def lead(followers: int, coordinator: str, then_wait: bool) -> None:
    exchange = FollowerListener("127.0.0.1", SECRET)
    say("address", exchange.address)
    lines = [exchange.next(120) for _ in range(followers)]
    jax.distributed.initialize(coordinator, followers + 1, 0, **PATIENCE)
    group = Group(lines, "seed 0")
    engine = open_engine(load("0").source, OPTIONS, "seed 0", group).start()
    if then_wait:
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
    with engine.compute.staged("1", "seed 1"):
        engine.update(load("1").source, "seed 1").result(60)
    say("others", answers(engine))
    try:
        with engine.compute.staged("2", "seed 3"):
            raise AssertionError("these are others")
    except ValueError as error:
        say("refused", str(error))
    try:
        with engine.compute.staged("nothing", "nothing"):
            raise AssertionError("there is nothing")
    except ValueError as error:
        say("failed", str(error))
    say("still", generate(engine, requests()[:2]))
    say("devices", [jax.device_count(), jax.local_device_count(), engine.stats.recompiles_after_warmup])
    engine.close()
    group.close()


def obey(rank: int, followers: int, coordinator: str, port: int, spec: str) -> None:
    line = connect(("127.0.0.1", port), SECRET)
    jax.distributed.initialize(coordinator, followers + 1, rank, **PATIENCE)
    follow(line, spec, OPTIONS, load)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "leader":
        lead(int(rest[0]), rest[1], rest[2:] == ["wait"])
    else:
        obey(int(rest[0]), int(rest[1]), rest[2], int(rest[3]), rest[4])
