"""Options of an engine and of a serving job. Light: imports neither jax nor Ray."""

import math
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lemur_ray.config import parse, topics
from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges

InFlight = Literal["recompute", "keep", "drain"]
"""What becomes of replies that have begun when weights are replaced.
recompute: their keys and values are computed again, and they go on as if the new weights had been given prompt and
reply so far; their version is "old+new". keep: they go on with the old keys and values; "old+new-kept". drain: they are
finished first, with the old weights alone, while new requests wait."""


@dataclass(frozen=True)
class EngineOptions:
    """Limits, memory and arithmetic of a serving engine."""

    context: int = 0
    """Longest sequence in tokens; 0: the model's own."""
    max_slots: int = 64
    """Sequences that are generated at the same time; at least 2."""
    cache_bytes: int = 2**30
    """Memory for keys and values in bytes, over all devices; if it is too small for all slots, fewer are used. 0: what
    the memory of accelerators leaves, on CPUs 1 GiB."""
    pin_s: float = 30.0
    """Seconds that the cache of a session (X-Session-Id, prompt_cache_key) is pinned after each of its replies."""
    pinned_share: float = 0.5
    """Largest share of the cache that is pinned."""
    max_queue: int = 256
    """Requests that may wait for a slot; more are refused (429)."""
    prefill_tiles: int = 4
    """Tiles of 32 prompt tokens that are computed with each decode step; 0: as many as take no longer than reading the
    weights, on CPUs 4."""
    dtype: Literal["auto", "float32", "bfloat16"] = "float32"
    """Number format of weights and cache; sums are always float32. auto: bfloat16 on accelerators, float32 on CPUs."""
    quantization: Literal["none", "int8"] = "none"
    """int8: matrices rounded to eight bits, a quarter of their memory and faster; accuracy: docs/log/serving.md."""
    batch_invariant: bool = True
    """Tokens and log-probabilities do not depend, to the last bit, on other requests; False is faster."""
    native: bool = True
    """On a CPU with a C++ compiler: products in C++ instead of XLA's slower ones."""
    float64: bool = False
    """Activations, cache, products and sums in float64, on CPUs and without C++: slower, to compare with. Weights and
    logits stay float32."""
    compile_threads: int = 2
    """Programs compiled at the same time at the start."""
    tensor_parallel: int = 1
    """Devices that share the model, each with a part of every matrix and of the cache; 0: all devices. -1: the fewest
    accelerators that hold the model and a whole context, on CPUs 1."""

    in_flight: InFlight = "recompute"
    """Replies that have begun when weights are replaced: recompute their keys and values (version "old+new"), keep them
    ("old+new-kept"), or drain: finish these replies first."""

    def __post_init__(self) -> None:
        check_ranges(self, context=FROM_ZERO, max_slots=(2, 4096), cache_bytes=FROM_ZERO, max_queue=FROM_ZERO)
        check_ranges(self, pin_s=FROM_ZERO, pinned_share=(0, 1))
        check_ranges(self, prefill_tiles=FROM_ZERO, compile_threads=COUNT, tensor_parallel=(-1, math.inf))
        if self.float64 and (self.dtype == "bfloat16" or self.quantization != "none"):
            raise ValueError(
                f"--engine.float64 with --engine.dtype {self.dtype} and --engine.quantization {self.quantization}: "
                "expected float32 and none"
            )

    @property
    def cache_dtype(self) -> str:
        """Number format of keys and values."""
        return "float64" if self.float64 else self.dtype


BY_MACHINE = EngineOptions(dtype="auto", cache_bytes=0, prefill_tiles=0, tensor_parallel=-1)
"""Options that ``planning.machine_defaults.chosen`` fills in for the machine that serves: the defaults of a job."""


@dataclass(frozen=True)
class Hosts:
    """The hosts on Ray that one engine reserves, all or none."""

    num: int = 1
    """Hosts that share the model; with a topology, its number of hosts."""
    use_gpu: bool = False
    """Each host gives its share of ``engine.tensor_parallel`` GPUs."""
    topology: str = ""
    """TPU slice topology, for example 2x2x2, which is reserved whole; empty: no TPU."""
    accelerator_type: str = ""
    """Ray's name of the TPU generation, for example TPU-V4."""

    def on_gpus(self, some_there: bool) -> bool:
        """Whether to reserve GPUs: with use_gpu, or if some_there, without a topology and without JAX_PLATFORMS=cpu."""
        return self.use_gpu or (some_there and not self.topology and os.environ.get("JAX_PLATFORMS") != "cpu")

    def __post_init__(self) -> None:
        check_ranges(self, num=COUNT)
        if bool(self.topology) != bool(self.accelerator_type) or (self.use_gpu and self.topology):
            raise ValueError(
                "a TPU slice is topology and accelerator_type, for example --hosts.topology 2x2x2 "
                "--hosts.accelerator-type TPU-V4; GPUs are use_gpu alone"
            )


@dataclass(frozen=True)
class ServeJob:
    """Serve a model behind the OpenAI protocol."""

    HELP = topics("serve")

    model: str = ""
    """Run folder or its name, checkpoint step folder, Hugging Face folder, random:nano, or random:nano@RUN (with that
    run's tokenizer). Empty: the newest run."""
    name: str = ""
    """Name of the model in requests. Empty: the model's own."""
    backend: Literal["jax", "vllm"] = "jax"
    """What generates, also spelled --engine: this project's engine, or vLLM (extra [vllm], GPUs) on Ray's own LLM
    deployment."""
    no_ray: bool = False
    """Plain uvicorn in this process, without Ray."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    num_cpus: float = 1.0
    """CPUs that the replica reserves on Ray, on each host."""
    hosts: Hosts = Hosts()
    replicas: int = 1
    """Replicas of the model on Ray, each with an engine of its own."""
    max_replicas: int = 0
    """Most replicas under load; 0: never more than replicas."""
    chat_template: str = ""
    """File with the Jinja template of chats, or chatml. Empty: the model's own."""
    follow_s: float = 0.0
    """Seconds between checks for a newer checkpoint of the run, which is then served; 0: no checks."""
    api_key: str = field(default="", repr=False)
    """Key that requests must bring; by default that of LEMUR_API_KEY, which process lists do not show."""
    engine: EngineOptions = BY_MACHINE

    def __post_init__(self) -> None:
        check_ranges(self, port=(0, 65535), num_cpus=FROM_ZERO, follow_s=FROM_ZERO, replicas=COUNT)
        if self.max_replicas:
            check_ranges(self, max_replicas=(self.replicas, math.inf))
        if self.backend == "vllm" and (self.no_ray or self.hosts != Hosts()):
            raise ValueError("vLLM runs on Ray, which places it: leave --no-ray and --hosts out")
        if self.backend == "vllm" and self.chat_template:
            raise ValueError("vLLM shows chats by the folder's own template: put yours there as chat_template.jinja")
        if self.no_ray and (self.replicas > 1 or self.max_replicas > 1 or self.hosts != Hosts()):
            raise ValueError("replicas and hosts are Ray's: leave --no-ray out")

    @classmethod
    def parse(cls, argv: Sequence[str] | None) -> "ServeJob":
        """Parse flags (None: sys.argv), in which ``--engine vllm`` and ``--engine.max-slots 8`` are both valid. Exits
        with code 2, as ``parse``, for an invalid one."""
        words = [re.sub("^--engine(?=$|=)", "--backend", word) for word in (sys.argv[1:] if argv is None else argv)]
        return parse(cls, words, prog="serve.py")
