"""New weights while requests run: nothing is dropped, no reply is mixed, nothing of the old cache is found again."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jax
import numpy as np
import pytest

from lemur_ray.config import identity
from lemur_ray.recipes import get_recipe
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.loading import load_text_engine, open_engine, update_weights
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.hf_tensors import transposes
from lemur_ray.weights.open_model import HostWeights, open_model, random_weights
from lemur_ray.weights.orbax_params import CheckpointSink
from lemur_ray.weights.param_slices import leaves, stream
from tests.serve.offline import generate
from tests.serve.tiny import OPTIONS, TINY, TOKENIZER, Waiter, poll, prompts
from tests.weights.whole_models import whole

Make = Callable[..., Engine]
OTHER = random_weights(TINY, 1)


@pytest.fixture(scope="module")
def of_other() -> Callable[[Generation], list[int]]:
    """What the other weights say, from an engine that never had any others."""
    engine = open_engine(OTHER, OPTIONS).start()
    yield lambda request: generate(engine, [request])[0]  # type: ignore[misc]
    engine.close()


def test_replies_under_way_end_as_they_began_and_later_ones_come_from_the_new_weights(
    engine: Engine, small_engine: Make, of_other: Callable
) -> None:
    asked = [
        Generation(p, 60, SamplingOptions(temperature=float(i % 2), seed=i)) for i, p in enumerate(prompts(8, seed=60))
    ]
    old = generate(engine, asked)
    small = small_engine(max_slots=3, max_queue=8)
    begun, waiting = [Waiter(small, r) for r in asked[:3]], []
    assert all(not w.next().finish for w in begun)
    done = small.update(OTHER, "second", "drain")
    waiting = [Waiter(small, r) for r in asked[3:]]
    assert [w.end().version for w in begun] == [""] * 3
    assert [w.tokens for w in begun] == old[:3]
    assert [w.end().version for w in waiting] == ["second"] * 5
    assert [w.tokens for w in waiting] == [of_other(r) for r in asked[3:]]
    assert done.result(timeout=60) is None


def test_nothing_of_the_old_cache_is_found_again(small_engine: Make, of_other: Callable) -> None:
    small = small_engine()
    request = Generation(prompts(1, seed=61, low=140, high=141)[0], 8, prompt_logprobs=True)
    first = Waiter(small, request).end
    assert first().cached == 0
    small.update(OTHER, "second").result(timeout=60)
    again = Waiter(small, request)
    event = again.next()
    while event.finish is None:
        event = again.next()
    assert (event.cached, again.tokens) == (0, of_other(request))
    assert small.stats.recompiles_after_warmup == 0


def test_weights_that_diverged_are_refused_and_the_old_ones_go_on(small_engine: Make, engine: Engine) -> None:
    small, request = small_engine(), Generation(prompts(1, seed=63)[0], 5)
    diverged = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), whole(OTHER))
    with pytest.raises(ValueError, match="NaN"):
        small.update(HostWeights(diverged, TINY), "diverged").result(timeout=60)
    assert generate(small, [request]) == generate(engine, [request])


def test_a_sequence_that_lost_its_place_ends_before_the_weights_change(engine: Engine, small_engine: Make) -> None:
    from lemur_ray.serve.compute.attention import block_bytes

    tight = small_engine(max_slots=8, max_queue=16, cache_bytes=5 * block_bytes(TINY))
    asked = [Generation(p, 200 - len(p)) for p in prompts(6, seed=62, low=100, high=120)]
    waiters = [Waiter(tight, r) for r in asked]
    poll(lambda: tight.stats.preemptions, "somebody is preempted")
    done = tight.update(OTHER, "second", "drain")
    versions = [w.end().version for w in waiters]
    mine = [w.tokens for w, v in zip(waiters, versions, strict=True) if not v]
    assert mine == [t for t, v in zip(generate(engine, asked), versions, strict=True) if not v]
    done.result(timeout=60)


def test_weights_of_another_model_are_refused_and_the_old_ones_stay(small_engine: Make) -> None:
    small = small_engine()
    before = generate(small, [Generation((9,), 5)])
    for field, value in (("ffn_dim", 128), ("rope_theta", 1e6)):
        other = replace(TINY, **{field: value})
        with pytest.raises(ValueError, match=f"another model: {field} {value}"):
            small.update(random_weights(other, 0), "other").result(timeout=60)
    assert generate(small, [Generation((9,), 5)]) == before
    small.close()
    with pytest.raises(EngineClosed):
        small.update(OTHER, "late").result(timeout=60)


def test_under_load_every_answer_names_the_weights_that_gave_it(small_engine: Make, of_other: Callable) -> None:
    small = small_engine(max_slots=4, max_queue=32)
    small.version = "first"
    answers: list[dict[str, Any]] = []
    prompt = [9, 10, 11]
    with running(TextEngine(small, TOKENIZER, "tiny"), close_engine=False) as url:

        def ask(number: int) -> None:
            for i in range(6):
                body = {"model": "tiny", "prompt": prompt, "max_tokens": 5 + number + i, "temperature": 0}
                answer = httpx.post(f"{url}/completions", json=body, timeout=60)
                assert answer.status_code == 200
                answers.append(answer.json())

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        poll(lambda: len(answers) > 8, "some answers")
        small.update(OTHER, "second", "drain").result(timeout=60)
        for thread in threads:
            thread.join()
    first = generate(open_engine(random_weights(TINY, 0), OPTIONS).start(), [Generation((9, 10, 11), 30)])[0]
    tokens = {"first": first, "second": of_other(Generation((9, 10, 11), 30))}
    assert len(answers) == 48
    for answer in answers:
        ids = answer["choices"][0]["token_ids"]
        assert ids == tokens[answer["system_fingerprint"]][: len(ids)]
    assert {answer["system_fingerprint"] for answer in answers} == {"first", "second"}
    assert not np.array_equal(tokens["first"], tokens["second"])


def test_a_server_that_follows_a_run_takes_over_its_newest_checkpoint(lemur_home: Path) -> None:
    run = Path(convert(Convert(model="random:nano", out="start", to="run"), str(lemur_home / "start")))
    small = EngineOptions(max_slots=2, prefill_tiles=1)
    served = load_text_engine(str(run), small, follow_s=0.2)
    first, request = served.version, Generation((9, 10, 11), 8)
    try:
        before = generate(served.engine, [request])
        model = open_model(str(run)).source
        other = HostWeights(jax.tree.map(lambda x: x + 0.05, whole(model)), model.config)
        plan = {"rows": 0, "recipe": identity(get_recipe("nano")), "hash": "h", "init_from": ""}
        dtypes = {name: other.dtype(name) for name in leaves(model.config)}
        sink = CheckpointSink(run / "checkpoints" / "7", model.config, dtypes, plan, transposes)
        stream(other, sink, transposes, block_rows=1024)
        sink.close()
        poll(lambda: served.version != first, "the newer weights are there")
        assert generate(served.engine, [request]) != before
        with pytest.raises(RuntimeError, match="no model at"):
            update_weights(served.engine, str(lemur_home / "nowhere"))
        assert update_weights(served.engine, str(run / "checkpoints" / "0")) == first
        assert generate(served.engine, [request]) == before
        time.sleep(1)  # five looks of the follower
        assert served.engine.version == first, "weights that were chosen stay until the run has newer ones"
    finally:
        served.engine.close()
