"""The engine: the same tokens at any load, and every way in which a request can end."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import init_params
from lemur_ray.serve.compute import on_devices, sampling
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import ContextExceeded, EngineClosed, QueueFull, RequestFailed
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.http.metrics import Metrics
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import HostWeights, random_weights
from tests.serve.offline import generate
from tests.serve.tiny import OPTIONS, TINY, Waiter, poll, prompts, slowed

Make = Callable[..., Engine]


def mixed_requests(num: int, seed: int) -> list[Generation]:
    """Greedy and drawn, short and long."""
    rng = np.random.default_rng(seed)
    return [
        Generation(
            p, int(rng.integers(1, 60)), SamplingOptions(temperature=float(i % 2), seed=i, top_p=(1.0, 0.9)[i % 3 == 0])
        )
        for i, p in enumerate(prompts(num, seed=seed))
    ]


def test_logits_are_bit_equal_over_all_programs_on_this_machine(engine: Engine) -> None:
    assert engine.stats.batch_invariant


@pytest.mark.parametrize("num", [7, 40, 90])
def test_a_request_gets_the_tokens_of_the_lone_run_in_any_company(engine: Engine, num: int) -> None:
    requests = mixed_requests(num, seed=num)
    together = generate(engine, requests)
    alone = [generate(engine, [r])[0] for r in requests[:7]]
    assert together[:7] == alone
    assert generate(engine, requests[::-1])[::-1] == together
    assert [len(t) for t in together] == [r.max_tokens for r in requests]


def test_requests_join_and_leave_a_running_batch_without_a_trace(engine: Engine) -> None:
    request = Generation(prompts(1, seed=5, low=90)[0], 100)
    alone = generate(engine, [request])[0]
    steady = Waiter(engine, request)
    for number, prompt in enumerate(prompts(20, seed=6)):
        steady.next()
        passer = Waiter(engine, Generation(prompt, 30))
        if number % 3 == 0:
            engine.cancel(passer.number)
    steady.end()
    assert steady.tokens == alone


def test_a_prefix_from_the_cache_changes_nothing(engine: Engine, small_engine: Make) -> None:
    history = prompts(1, seed=8, low=60, high=61)[0]
    for turn in range(5):
        # The cold run is on an engine that has never seen the conversation before this turn's first request.
        cold = Waiter(small := small_engine() if turn in (0, 4) else engine, Generation(history, 12))
        cold_end = cold.end()
        warm = Waiter(engine, Generation(history, 12))
        assert warm.end().cached >= (len(history) - 45 if turn else 0)
        assert warm.tokens == cold.tokens
        assert small is engine or cold_end.cached == 0
        history += (*warm.tokens, *prompts(1, seed=20 + turn, low=20, high=21)[0])


def test_only_what_is_new_is_computed_in_the_next_turn(engine: Engine) -> None:
    history = prompts(1, seed=31, low=100, high=101)[0]
    reply = generate(engine, [Generation(history, 10)])[0]
    before = engine.stats.prefill_tokens
    follow = Waiter(engine, Generation((*history, *reply, 50, 51, 52), 3))
    assert follow.end().cached == len(history) + len(reply) - 1
    assert engine.stats.prefill_tokens - before == 4


@pytest.mark.slow
def test_where_shapes_change_bits_every_step_is_padded_to_one_shape(
    small_engine: Make, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_devices, "is_batch_invariant", lambda *_: False)
    padded = small_engine(max_slots=4)
    requests = mixed_requests(6, seed=3)
    assert generate(padded, requests) == generate(engine, requests)
    history = requests[1].prompt
    generate(padded, [Generation(history, 20)])
    again = Waiter(padded, Generation(history, 20))
    assert again.end().cached == (len(history) - 1) // 32 * 32
    assert padded.stats.padding_rows > 0
    assert not padded.stats.batch_invariant
    assert "lemur_padded_to_one_shape 1\n" in Metrics(padded).render()
    assert "lemur_padded_to_one_shape 0\n" in Metrics(engine).render()


@pytest.mark.slow
def test_without_invariance_the_tokens_are_the_same_where_no_two_are_all_but_equal(
    small_engine: Make, engine: Engine
) -> None:
    fast = small_engine(max_slots=4, prefill_tiles=4, batch_invariant=False)
    requests = mixed_requests(6, seed=3)
    lone, together = [generate(fast, [request])[0] for request in requests], generate(fast, requests)
    assert lone == together == generate(engine, requests)
    assert (fast.stats.batch_invariant, fast.stats.recompiles_after_warmup) == (False, 0)


def test_a_drawn_reply_is_the_same_for_the_same_seed_and_another_for_another(engine: Engine) -> None:
    prompt = prompts(1, seed=9)[0]

    def drawn(sample_index: int = 0, **options: Any) -> list[int]:
        sampling = SamplingOptions(temperature=1.0, **options)
        return generate(engine, [Generation(prompt, 20, sampling, sample_index=sample_index)])[0]

    assert drawn(seed=1) == drawn(seed=1)
    assert len({tuple(drawn(seed=s, sample_index=c)) for s in (1, 2) for c in (0, 1)}) == 4
    assert drawn(top_k=1) == generate(engine, [Generation(prompt, 20)])[0]


def test_a_stop_id_ends_the_reply_and_is_its_last_token(engine: Engine) -> None:
    prompt = prompts(1, seed=10)[0]
    tokens = generate(engine, [Generation(prompt, 20)])[0]
    waiter = Waiter(engine, Generation(prompt, 20, stop_ids=frozenset((tokens[6],))))
    assert waiter.end().finish == "stop"
    assert waiter.tokens == tokens[: tokens.index(tokens[6]) + 1]


def test_nothing_is_compiled_after_the_warm_up(engine: Engine) -> None:
    for num in (1, 2, 3, 8, 9, 33, 40):
        generate(engine, [Generation(p, 2, SamplingOptions(temperature=1.0)) for p in prompts(num, seed=num)])
    assert engine.stats.recompiles_after_warmup == 0


def test_cancelling_frees_the_slot_at_the_next_step(small_engine: Make) -> None:
    engine = small_engine()
    with slowed(engine):
        running = [Waiter(engine, Generation((9, 8), 250)) for _ in range(2)]
        queued = Waiter(engine, Generation((7, 7), 3))
        for waiter in running:
            waiter.next()
        engine.cancel(running[0].number)
        assert queued.end().finish == "length"
        assert running[0].end().finish == "cancelled"
    assert len(running[0].tokens) < 250
    assert running[1].end().finish == "length"
    engine.cancel(running[0].number)
    poll(lambda: engine.stats.active == 0, "no request is active")


def test_a_queued_request_can_be_cancelled(small_engine: Make) -> None:
    engine = small_engine()
    with slowed(engine):
        running = [Waiter(engine, Generation((9, 8), 250)) for _ in range(2)]
        queued = Waiter(engine, Generation((7, 7), 3))
        engine.cancel(queued.number)
        assert queued.end().finish == "cancelled"
        poll(lambda: engine.stats.queued == 0, "nobody is queued")
    for waiter in running:
        engine.cancel(waiter.number)
        waiter.end()


def test_a_full_queue_refuses_with_a_time_to_come_back(small_engine: Make) -> None:
    engine = small_engine()
    accepted = []
    refused = None
    while refused is None:
        try:
            accepted.append(Waiter(engine, Generation((9, 8), 250)))
        except QueueFull as error:
            refused = error
    assert 1 <= refused.retry_after_s <= 30
    assert "requests are waiting already" in str(refused)
    assert len(accepted) >= 5
    for waiter in accepted:
        engine.cancel(waiter.number)
        waiter.end()
    assert engine.stats.queued == 0


def test_what_cannot_be_generated_is_refused_at_once(engine: Engine) -> None:
    def listen(events: object) -> None:
        raise AssertionError("nothing was submitted")

    with pytest.raises(ContextExceeded, match=r"maximum context length is 256 tokens.*260 tokens \(250 in the prompt"):
        engine.submit(Generation((1,) * 250, 10), listen)
    with pytest.raises(ValueError, match="at least one prompt token"):
        engine.submit(Generation((), 10), listen)
    with pytest.raises(ValueError, match=r"outside 0\.\.262"):
        engine.submit(Generation((TINY.vocab_size,), 10), listen)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 2**31}, "top_k is 2147483648: expected a finite number, at least 0 and at most 2147483647"),
        ({"top_k": -1}, "top_k is -1: expected a finite number, at least 0 and at most 2147483647"),
        ({"temperature": float("nan")}, "temperature is nan: expected a finite number, at least 0"),
        ({"temperature": -1.0}, "temperature is -1.0: expected a finite number, at least 0"),
        ({"top_p": 0.0}, "top_p is 0.0: expected a finite number, above 0 and at most 1"),
    ],
)
def test_settings_that_no_draw_can_have_are_refused_at_once(
    engine: Engine, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        engine.submit(Generation((9,), 4, SamplingOptions(**change)), lambda events: None)


def test_an_error_of_one_request_ends_that_request_and_no_other(
    small_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = small_engine()
    steady = Generation((9,), 40, SamplingOptions(temperature=1.0, seed=1))
    alone = generate(engine, [steady])[0]
    row = sampling.draw_row
    monkeypatch.setattr(sampling, "draw_row", lambda request: 1 // (request.sampling.seed != 13) and row(request))
    first, broken = (
        Waiter(engine, steady),
        Waiter(engine, Generation((9, 10), 40, SamplingOptions(temperature=1.0, seed=13))),
    )
    assert broken.end().finish == "error"
    assert first.end().finish == "length"
    assert first.tokens == alone
    with pytest.raises(RequestFailed):
        generate(engine, [Generation((9,), 4, SamplingOptions(temperature=1.0, seed=13))])
    assert (engine.failure, engine.stats.finished["error"]) == (None, 2)
    poll(lambda: engine.stats.active == 0 and engine.stats.queued == 0, "the slots are free")


def test_a_listener_that_fails_loses_its_own_request_only(small_engine: Make) -> None:
    engine = small_engine()

    def deaf(events: object) -> None:
        raise RuntimeError("the loop is closed")

    waiter = Waiter(engine, Generation((9,), 30))
    engine.submit(Generation((9, 10), 200), deaf)
    assert waiter.end().finish == "length"
    poll(lambda: engine.stats.active == 0, "the deaf listener's slot is free")
    assert engine.failure is None


def test_the_context_can_be_filled_to_its_last_token(engine: Engine) -> None:
    assert len(generate(engine, [Generation((11,) * 255, 1)])[0]) == 1
    assert len(generate(engine, [Generation((11,), 255)])[0]) == 255


def test_a_dying_engine_fails_everybody_and_refuses_the_next(small_engine: Make) -> None:
    engine = small_engine()

    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    with slowed(engine):
        waiters = [Waiter(engine, Generation((9, 8), 250)) for _ in range(3)]
        waiters[0].next()
        engine._batch.programs.step = broken  # type: ignore[method-assign,assignment]
        assert [w.end().finish for w in waiters] == ["error"] * 3
    poll(lambda: engine.failure is not None, "the failure is known")
    with pytest.raises(EngineClosed, match="out of memory"):
        engine.submit(Generation((1,), 1), lambda _: None)


def test_closing_lets_running_requests_finish(small_engine: Make) -> None:
    engine = small_engine()
    with slowed(engine):
        waiter = Waiter(engine, Generation((9, 8), 200))
        waiter.next()
        closing = threading.Thread(target=engine.close, args=(60.0,))
        closing.start()
        poll(lambda: not engine.accepting, "new requests are refused")
        with pytest.raises(EngineClosed, match="shutting down"):
            engine.submit(Generation((1,), 1), lambda _: None)
    assert waiter.end().finish == "length"
    closing.join()


def test_an_engine_that_cannot_start_says_why() -> None:
    broken = init_params(TINY, 0)
    broken["layers"]["wo"] = broken["layers"]["wo"][:, :3]
    with pytest.raises(EngineClosed, match="could not start"):
        open_engine(HostWeights(broken, TINY), OPTIONS).start()


def test_memory_for_the_cache_bounds_the_number_of_blocks() -> None:
    config = ModelConfig(num_layers=1, dim=32, ffn_dim=32, num_heads=1, num_kv_heads=1, max_seq_len=1024)
    block = 2 * 32 * 128 * 4
    for given, found in ((40 * block, 40), (1, 8)):  # one sequence always fits
        options = EngineOptions(cache_bytes=given)
        assert open_engine(random_weights(config, 0), options).num_blocks == 1 + found


def test_a_sequence_that_loses_its_blocks_goes_on_as_if_nothing_had_happened(
    engine: Engine, small_engine: Make
) -> None:
    tight = small_engine(max_slots=8, max_queue=16, cache_bytes=5 * block_bytes(TINY))
    requests = [
        Generation(p, 250 - len(p), SamplingOptions(temperature=float(i % 2), seed=i))
        for i, p in enumerate(prompts(6, seed=40, low=30, high=110))
    ]
    assert generate(tight, requests) == generate(engine, requests)
    assert tight.stats.preemptions > 0
    poll(lambda: tight.stats.blocks_held == 0 and tight.stats.active == 0, "every block is given back")
    assert tight.stats.queued == 0


def test_a_header_that_many_share_is_computed_once(engine: Engine) -> None:
    header = prompts(1, seed=50, low=149, high=150)[0]
    requests = [Generation((*header, *p), 3) for p in prompts(12, seed=51, low=5, high=30)]
    before = engine.stats.prefill_tokens
    generate(engine, requests)
    unique = len(header) + sum(len(r.prompt) - len(header) for r in requests)
    # Who comes while the header's last tile is computed does not wait for it.
    late = (len(requests) - 1) * (len(header) % engine._batch.scheduler.tile)
    assert engine.stats.prefill_tokens - before <= 1.1 * unique + late
    assert unique + late < 0.4 * sum(len(r.prompt) for r in requests)
