"""How an engine and its server are sized. Light: imports neither jax nor Ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """How large an engine is."""

    context: int = 0
    """Longest sequence in tokens; 0: the model's own."""
    max_slots: int = 64
    """Sequences that are generated at once, or kept to be continued."""
    cache_bytes: int = 2**30
    """Memory for keys and values in bytes; there are fewer slots where this does not hold all."""
    max_queue: int = 256
    """Requests that may wait for a slot; more are refused (429)."""
    prefill_tiles: int = 4
    """Tiles of 32 prompt tokens that are computed beside one decode step."""
    compile_threads: int = 2
    """Programs compiled at the same time at the start."""


@dataclass(frozen=True)
class ServeJob:
    """What is served where."""

    model: str = ""
    """Run folder or its name, checkpoint step folder, Hugging Face folder, or random:nano. Empty: the newest run."""
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
    engine: EngineOptions = EngineOptions()
