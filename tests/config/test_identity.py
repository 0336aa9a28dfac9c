"""What a run is: its JSON form, its identity and hash, values that cannot be."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.config import (
    DataConfig,
    LoraConfig,
    ModelConfig,
    Recipe,
    RopeScaling,
    SourceConfig,
    TuningConfig,
    differing_fields,
    from_dict,
    identity,
)
from lemur_ray.config.optimizer import AdamW, Muon
from lemur_ray.recipes import NAMES, get_recipe
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from tests.config.recipe_fields import fields_of


def test_a_recipe_survives_json() -> None:
    recipe = dataclasses.replace(
        get_recipe("lemur-70b"), train=dataclasses.replace(Recipe().train, skip_rows=((1, 2),))
    )
    assert from_dict(Recipe, json.loads(json.dumps(dataclasses.asdict(recipe)))) == recipe


def test_json_with_an_unknown_field_names_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'seq_len'"):
        from_dict(Recipe, {"data": {"seq_length": 4}})


def test_the_hash_changes_with_every_field_that_decides_the_numbers_and_with_no_other() -> None:
    recipe = Recipe(data=DataConfig(sources=(SourceConfig("a", "code", 1.0),)), tuning=TuningConfig(epochs=2))
    recipe = dataclasses.replace(recipe, lora=LoraConfig(rank=2))
    free = {
        "source",
        "mesh",
        "watch",
        "train.checkpoint_every_steps",
        "train.checkpoint_every_s",
        "train.keep_checkpoints",
    }
    free |= {"train.log_every_steps", "train.max_failures", "train.max_skips_in_a_row", "train.eval_every_steps"}
    free |= {"train.eval_rows", "train.microbatches", "train.remat", "train.keep_every_steps"}
    free |= {"train.preemption_every_steps", "data.max_documents", "train.attention_block"}
    other: dict[type, Any] = {
        int: lambda v: v + 2,  # fsdp may be -1 or 1, not 0
        float: lambda v: v / 2 + 0.01,
        bool: lambda v: not v,
        str: lambda v: v + "x",
    }
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, rope_scaling=scaling))
    for name in fields_of(recipe):
        section, _, leaf = name.rpartition(".")
        *outer, section = section.split(".")
        parent = getattr(recipe, outer[0]) if outer else recipe
        holder = getattr(parent, section) if section else recipe
        value = getattr(holder, leaf)
        changed = other[type(value)](value) if type(value) in other else ()
        if leaf == "skip_rows":
            changed = ((0, 1),)
        chosen = {"kind": "linear", "remat": "full", "keep_every_steps": 400, "matrices": ("wq",), "also": ("head",)}
        chosen |= {"attention_block": 256}
        changed = chosen.get(leaf, changed)
        holder = dataclasses.replace(holder, **{leaf: changed})
        altered = dataclasses.replace(parent, **{section: holder}) if section else holder
        altered = dataclasses.replace(recipe, **{outer[0]: altered}) if outer else altered
        same = altered.hash == recipe.hash
        assert same == (name in free or section in free), name


def test_a_model_without_rope_scaling_has_the_identity_it_had_before_there_was_any() -> None:
    assert "rope_scaling" not in identity(Recipe())["model"]
    linear = Recipe(model=ModelConfig(rope_scaling=RopeScaling("linear", 2.0)))
    assert identity(linear)["model"]["rope_scaling"]["factor"] == 2.0
    old = dataclasses.asdict(Recipe())
    del old["model"]["rope_scaling"]
    assert from_dict(Recipe, old) == Recipe()


@pytest.mark.parametrize("fields", [{"factor": 2.0}, {"kind": "linear", "factor": 0.5}, {"high_freq_factor": 1.0}])
def test_rope_scaling_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        RopeScaling(**fields)


def test_differing_fields_are_named_with_both_values() -> None:
    a, b = Recipe(), dataclasses.replace(Recipe(), train=dataclasses.replace(Recipe().train, steps=7))
    assert [str(field) for field in differing_fields(identity(a), identity(b))] == ["train.steps: 1000 != 7"]


OPTIMIZER_HASHES: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("optimizer_hashes.json").read_text(encoding="utf-8")
)
"""Optimizer flags -> recipe -> hash, from before update rules were values of their own."""


@pytest.mark.parametrize("flags", OPTIMIZER_HASHES)
def test_optimizer_flags_give_the_recipe_hashes_that_stored_checkpoints_have(flags: str) -> None:
    assert set(OPTIMIZER_HASHES[flags]) == set(NAMES)
    for name, expected in OPTIMIZER_HASHES[flags].items():
        assert parse_job(TrainingJob, [name, *flags.split()], prog="golden").recipe.hash == expected, name


def test_an_update_rule_holds_its_own_options_and_the_memory_of_its_state() -> None:
    nano, lemur = get_recipe("nano").optimizer.rule, get_recipe("lemur-70b").optimizer.rule
    assert lemur == AdamW(0.9, 0.95, 1e-5, 0.1)
    assert nano == Muon(5.0, 0.95, AdamW(0.9, 0.98, 1e-8, 0.1))
    assert [rule.state_bytes(block_matrix=True) for rule in (lemur, nano)] == [8, 4]
    assert [rule.state_bytes(block_matrix=False) for rule in (lemur, nano)] == [8, 8]
