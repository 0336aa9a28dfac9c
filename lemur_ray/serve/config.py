"""How an engine and its server are sized. Light: imports neither jax nor Ray."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lemur_ray.config import COUNT, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class EngineOptions:
    """How large an engine is."""

    context: int = 0
    """Longest sequence in tokens; 0: the model's own."""
    max_slots: int = 64
    """Sequences that are generated at once, or kept to be continued; at least 2."""
    cache_bytes: int = 2**30
    """Memory for keys and values in bytes; there are fewer slots where this does not hold all."""
    max_queue: int = 256
    """Requests that may wait for a slot; more are refused (429)."""
    prefill_tiles: int = 4
    """Tiles of 32 prompt tokens that are computed beside one decode step."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights and of the cache; sums are float32 in any case."""
    quantization: Literal["none", "int8"] = "none"
    """int8: matrices rounded to eight bits, a quarter of their memory and faster; docs/log.md says what it costs."""
    batch_invariant: bool = True
    """Tokens and log-probabilities that do not depend, to the last bit, on what else is served; False is faster."""
    compile_threads: int = 2
    """Programs compiled at the same time at the start."""

    def __post_init__(self) -> None:
        check_ranges(self, context=FROM_ZERO, max_slots=(2, 4096), cache_bytes=COUNT, max_queue=FROM_ZERO)
        check_ranges(self, prefill_tiles=COUNT, compile_threads=COUNT)


@dataclass(frozen=True)
class ServeJob:
    """What is served where."""

    model: str = ""
    """Run folder or its name, checkpoint step folder, Hugging Face folder, random:nano, or random:nano@RUN (with that
    run's tokenizer). Empty: the newest run."""
    name: str = ""
    """Name of the model in requests. Empty: the model's own."""
    no_ray: bool = False
    """Plain uvicorn in this process, without Ray."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    num_cpus: float = 1.0
    """CPUs that the replica reserves on Ray."""
    follow_s: float = 0.0
    """Seconds between looks for a newer checkpoint of the run, whose weights then take over; 0: the first one stays."""
    api_key: str = field(default="", repr=False)
    """Key that requests must bring; by default what LEMUR_API_KEY says, which no list of processes shows."""
    engine: EngineOptions = EngineOptions()

    def __post_init__(self) -> None:
        check_ranges(self, port=(0, 65535), num_cpus=FROM_ZERO, follow_s=FROM_ZERO)
