"""Tokens and logits against an outside oracle: transformers' LlamaForCausalLM with the same random weights."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from lemur_ray.config import ModelConfig, RopeScaling
from lemur_ray.model.llama import Params, init_params
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.token_logprobs import joined
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.hf_config import config_files
from lemur_ray.weights.open_model import HostWeights
from tests.serve.offline import generate
from tests.serve.tiny import Waiter, prompts

_NAMES = {
    "attn_norm": "input_layernorm",
    "wq": "self_attn.q_proj",
    "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj",
    "wo": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def oracle(params: Params, config: ModelConfig) -> "transformers.LlamaForCausalLM":
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.dim,
            intermediate_size=config.ffn_dim,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_seq_len,
            rms_norm_eps=config.norm_eps,
            rope_parameters=json.loads(config_files(config, None, "float32")["config.json"])["rope_parameters"],
            tie_word_embeddings=config.tie_embeddings,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",
        )
    )
    state = {"model.embed_tokens.weight": params["embed"], "model.norm.weight": params["final_norm"]}
    state["lm_head.weight"] = params["head"].T if "head" in params else params["embed"]
    for ours, theirs in _NAMES.items():
        for i, weight in enumerate(np.asarray(params["layers"][ours])):
            state[f"model.layers.{i}.{theirs}.weight"] = weight.T
    model.load_state_dict({name: torch.from_numpy(np.array(w, np.float32)) for name, w in state.items()})
    return model.eval()


LLAMA3 = RopeScaling("llama3", 8.0, 1.0, 4.0, original_max_seq_len=64)
COMMON: dict[str, Any] = {
    "vocab_size": 199,
    "num_layers": 2,
    "dim": 48,
    "ffn_dim": 80,
    "max_seq_len": 384,
    "rope_theta": 5000.0,
}
CONFIGS = {
    "every head its own keys": ModelConfig(**COMMON, num_heads=4, num_kv_heads=4, head_dim=12),
    "grouped, tied, llama3": ModelConfig(
        **COMMON, num_heads=4, num_kv_heads=2, head_dim=12, rope_scaling=LLAMA3, tie_embeddings=True
    ),
    "one key head": ModelConfig(**COMMON, num_heads=4, num_kv_heads=1, head_dim=12),
    "tied": ModelConfig(**COMMON, num_heads=4, num_kv_heads=4, head_dim=12, tie_embeddings=True),
    "linear": ModelConfig(**COMMON, num_heads=4, num_kv_heads=2, head_dim=12, rope_scaling=RopeScaling("linear", 4.0)),
    "wide heads": ModelConfig(**COMMON, num_heads=3, num_kv_heads=3, head_dim=32),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.sweep if name in ("linear", "wide heads", "tied") else ())
        for name in CONFIGS
    ],
)
def test_greedy_tokens_are_those_of_transformers(name: str) -> None:
    config = CONFIGS[name]
    params = init_params(config, 3)
    prompt = tuple(np.random.default_rng(0).integers(0, config.vocab_size, 70).tolist())
    engine = open_engine(HostWeights(params, config), EngineOptions(max_slots=2, prefill_tiles=1)).start()
    try:
        ours = generate(engine, [Generation(prompt, 256), Generation(prompt[:5], 40)])
    finally:
        engine.close()
    model = oracle(params, config)
    for tokens, begin in zip(ours, (prompt, prompt[:5]), strict=True):
        with torch.no_grad():
            theirs = model.generate(
                torch.tensor([begin]),
                attention_mask=torch.ones(1, len(begin), dtype=torch.long),
                max_new_tokens=len(tokens),
                do_sample=False,
                pad_token_id=0,
            )
        assert tokens == theirs[0, len(begin) :].tolist()


def test_bfloat16_keeps_nearly_every_distribution(small_engine: Callable[..., Engine]) -> None:
    exact, rounded = small_engine(), small_engine(dtype="bfloat16")
    scored = [[], []]  # type: list[list[TokenLogprobs]]
    for prompt in prompts(6, seed=70, low=200, high=250):
        for engine, found in zip((exact, rounded), scored, strict=True):
            event = Waiter(engine, Generation(prompt, 0, prompt_logprobs=True)).end()
            assert event.prompt_logprobs is not None
            found.append(event.prompt_logprobs.part(1, len(prompt)))
    ours, reference = joined(scored[1]), joined(scored[0])
    assert len(ours.logprob) > 1000
    assert np.mean(ours.top_ids[:, 0] == reference.top_ids[:, 0]) > 0.97
    assert np.abs(ours.logprob - reference.logprob).mean() < 0.01
    assert np.abs(ours.logprob - reference.logprob).max() < 0.1
