"""A model of each family through all stages: imported, pretrained, tuned with adapters, exported, served, swapped."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from lemur_ray.agents.messages import Message
from lemur_ray.config import LoraConfig, OptimizerConfig, Recipe
from lemur_ray.instruct.chat_tokens import with_chat_format
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.table import build_table
from lemur_ray.rollout.endpoints.policy_target import checkpoint_label, pin_checkpoint
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.loading import load_text_engine, update_weights
from lemur_ray.text.tokenizer_folder import tokenizer_in
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.hf_config import read_config
from tests.model.logits import logits
from tests.serve.offline import generate
from tests.serve.tiny import Waiter
from tests.train.conftest import SEQ_LEN
from tests.weights.torch_models import FAMILIES, saved
from tests.weights.whole_models import params_of

TALKS = [Conversation("talks", str(n), (Message("user", "def add"), Message("assistant", "a + b"))) for n in range(8)]
PROMPTS = [tuple(np.random.default_rng(n).integers(0, 321, 20 + 9 * n).tolist()) for n in range(4)]
EVERY_KIND = ({}, {"dtype": "bfloat16"}, {"quantization": "int8"})


def scores(engine: Engine) -> np.ndarray:
    """Log-probabilities of the tokens of the longest prompt."""
    event = Waiter(engine, Generation(PROMPTS[-1], 0, prompt_logprobs=True)).end()
    assert event.prompt_logprobs is not None
    return np.asarray(event.prompt_logprobs.logprob[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [("qwen3", ({},)), *(pytest.param(name, EVERY_KIND, marks=pytest.mark.sweep) for name in FAMILIES)],
)
def test_a_family_goes_through_every_stage(
    name: str,
    kinds: tuple[dict[str, Any], ...],
    tmp_path: Path,
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
) -> None:
    """From bfloat16 weights. The tokenizer has more ids than the model rows, so rows are added too."""
    hf, imported, pretrained, tuned, out = (tmp_path / n for n in ("hf", "imported", "pretrained", "tuned", "out"))
    stored = read_config(saved(name, hf, torch.bfloat16))
    convert(Convert(str(hf), str(imported), "run"), str(imported))

    small = small_recipe(steps=2, eval_rows=0)
    adam = OptimizerConfig(peak_lr=1e-2, warmup_steps=1)
    whole = dataclasses.replace(small, model=dataclasses.replace(stored, vocab_size=321), optimizer=adam)
    run_here(whole, pretrained, init_from=str(imported))

    tokenizer = with_chat_format(tokenizer_in(pretrained), say=lambda line: None)
    table, _ = build_table(TALKS, tokenizer, tmp_path / "tables", seq_len=SEQ_LEN)
    adapted = dataclasses.replace(whole, lora=LoraConfig(rank=2))
    run_here(adapted, tuned, init_from=str(pretrained), source=Path(table))
    params = params_of(tuned)
    assert np.abs(params["layers"]["wq"] - params_of(pretrained)["layers"]["wq"]).max() > 0

    convert(Convert(str(tuned), str(out)), str(out))
    assert json.loads((out / "config.json").read_text())["model_type"] == stored.family
    theirs = AutoModelForCausalLM.from_pretrained(str(out), attn_implementation="eager").float().eval()
    ids = np.random.default_rng(0).integers(0, 321, (1, 60))
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    ours = logits(params, whole.model, jnp.asarray(ids), jnp.ones((1, 60), jnp.int32), jnp.arange(60)[None])
    assert np.abs(np.asarray(ours) - expected).max() < 1e-4

    policy = pin_checkpoint(str(tuned))  # what --policy checkpoint: serves
    assert checkpoint_label(policy).startswith("tuned@2-")
    found = {}
    for kind in kinds:
        engine = load_text_engine(policy, EngineOptions(max_slots=4, context=128, **kind)).engine
        try:
            found[str(kind)] = scores(engine)
            if not kind:
                replies = generate(engine, [Generation(prompt, 12) for prompt in PROMPTS])
                update_weights(engine, str(out))
                assert generate(engine, [Generation(prompt, 12) for prompt in PROMPTS]) == replies
        finally:
            engine.close()
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        with torch.no_grad():
            likeliest = theirs(torch.tensor([[*prompt, *reply]])).logits.argmax(-1)[0].tolist()
        assert likeliest[len(prompt) - 1 : -1] == reply
    exact = found.pop("{}")
    for kind, rounded in found.items():
        assert np.abs(rounded - exact).mean() < 0.1, kind
