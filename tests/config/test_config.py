"""The command line and the identity of a run."""

import dataclasses
import importlib
import json
from collections.abc import Iterator
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
    format_source,
    from_dict,
    identity,
    parse,
    parse_source,
)
from lemur_ray.home import find_model, resolve_out
from lemur_ray.recipes import get_recipe
from lemur_ray.serve.config import ServeJob
from lemur_ray.train.job_arguments import TrainingJob, parse_job


def fields_of(config: Any, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def test_help_describes_every_field_of_a_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        parse_job(TrainingJob, ["--help"], prog="pretrain.py")
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name in fields_of(Recipe()):
        flag = f" --{name.replace('_', '-')} "
        assert flag in text, f"{flag} is not in --help"
        words = text.partition(flag)[2].partition(" --")[0].partition("(default")[0].split()
        assert len(words) > 3, f"{flag} has no description"


def test_an_unknown_flag_names_the_nearest_one_and_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_job(TrainingJob, ["nano", "--train.stps", "5"], prog="pretrain.py")
    assert end.value.code == 2
    assert "--train.steps" in capsys.readouterr().err


def test_an_unknown_recipe_names_the_nearest_one_and_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_job(TrainingJob, ["lama2-70b"], prog="pretrain.py")
    assert end.value.code == 2
    assert "did you mean 'llama2-70b'?" in capsys.readouterr().err


def test_the_recipe_is_the_first_argument_and_nano_without_one() -> None:
    assert parse_job(TrainingJob, [], prog="p").recipe == get_recipe("nano")
    job = parse_job(TrainingJob, ["llama2-70b", "--train.steps", "21458", "--out", "gs://b/x"], prog="p")
    assert (job.recipe.name, job.recipe.train.steps, job.out) == ("llama2-70b", 21458, "gs://b/x")
    assert job.recipe.model == get_recipe("llama2-70b").model


def test_a_mixture_is_given_on_the_command_line() -> None:
    job = parse_job(TrainingJob, ["--data.sources", "python:code:72.73:2.98", "docs:text:1"], prog="p")
    assert job.recipe.data.sources == (SourceConfig("python", "code", 72.73, 2.98), SourceConfig("docs", "text", 1.0))
    for source in job.recipe.data.sources:
        assert parse_source(format_source(source)) == source


@pytest.mark.parametrize("text", ["python", "python:prose:1", "python:code:1:2:3"])
def test_a_malformed_source_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="NAME:KIND:WEIGHT"):
        parse_source(text)


def test_ranges_of_skipped_rows_are_given_as_pairs() -> None:
    assert parse(Recipe, ["--train.skip-rows", "5", "7", "10", "12"]).train.skip_rows == ((5, 7), (10, 12))


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
    free |= {"train.preemption_every_steps"}
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


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("train.log-every-steps", "0"),
        ("train.checkpoint-every-steps", "0"),
        ("train.microbatches", "0"),
        ("train.steps", "-1"),
        ("train.max-skips-in-a-row", "0"),
        ("train.seed", str(2**70)),
        ("data.seed", "-1"),
        ("mesh.num-workers", "0"),
        ("mesh.tp", "0"),
        ("mesh.fsdp", "-7"),
        ("mesh.cpus-per-worker", "nan"),
        ("train.spike-sigmas", "inf"),
        ("model.num-heads", "0"),
        ("model.dim", "-128"),
        ("optimizer.peak-lr", "nan"),
        ("optimizer.b1", "1.0"),
        ("data.seq-len", "0"),
        ("data.code-to-text", "-1.0"),
        ("data.sources", "python:code:nan"),
        ("data.sources", "python:code:1:-2"),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_name_with_code_2(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_job(TrainingJob, [f"--{flag}={value}"], prog="pretrain.py")
    assert end.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    name = flag.split(".")[1].replace("-", "_")
    assert f"{name} is {value}: expected" in said or f"Error parsing --{flag}" in said
    assert value in said


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("engine.prefill-tiles", "0"),
        ("engine.context", "-5"),
        ("engine.compile-threads", "0"),
        ("engine.max-slots", "0"),
        ("engine.cache-bytes", "0"),
        ("engine.max-queue", "-1"),
        ("port", "99999999"),
        ("num-cpus", "-1.0"),
    ],
)
def test_a_server_of_an_impossible_size_is_refused_by_name_with_code_2(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(ServeJob, [f"--{flag}={value}"], prog="serve.py", bare_flags=True)
    assert end.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"{flag.split('.')[-1].replace('-', '_')} is {value}: expected" in said


def test_differing_fields_are_named_with_both_values() -> None:
    a, b = Recipe(), dataclasses.replace(Recipe(), train=dataclasses.replace(Recipe().train, steps=7))
    assert differing_fields(identity(a), identity(b)) == ["train.steps: 1000 != 7"]


def test_a_model_is_a_run_by_name_or_a_folder_and_never_a_bucket(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = lemur_home / "runs" / "nano" / "checkpoints" / "5"
    (tmp_path / "cwd" / "nano").mkdir(parents=True)
    step.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cwd")
    assert find_model("nano") == find_model("runs/nano") == str(lemur_home / "runs" / "nano")
    assert find_model(str(step)) == find_model("nano/checkpoints/5") == str(step)
    assert find_model("random:nano") == "random:nano"
    assert find_model("random:nano@nano") == f"random:nano@{lemur_home / 'runs' / 'nano'}"
    for name in ("nona", "", "random:nano@nona"):
        with pytest.raises(ValueError, match=r"neither a folder nor a run in .*runs \(there: nano\)"):
            find_model(name)
    with pytest.raises(ValueError, match="local or mounted folder"):
        find_model("gs://bucket/nano")


def test_instruct_says_in_its_help_what_its_own_defaults_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "jobs"))
    with pytest.raises(SystemExit):
        importlib.import_module("instruct").main(["--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Empty: the run nano." in text
    assert "Empty: made of games and questions, in a folder of instruct/<name of the recipe>." in text
    assert "the embedded corpus, built first" not in text
    assert "random parameters" not in text


def test_outputs_never_lie_in_the_working_directory(lemur_home: Any) -> None:
    assert resolve_out("", "runs/nano") == str(lemur_home / "runs/nano")
    assert resolve_out("mine", "runs/nano") == str(lemur_home / "mine")
    assert resolve_out("/x/y", "runs/nano") == "/x/y"
    assert resolve_out("gs://b/run/", "runs/nano") == "gs://b/run"
