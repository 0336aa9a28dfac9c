"""The command line on frozen configurations."""

import importlib
import re
from pathlib import Path

import pytest

from lemur_ray.config import (
    Recipe,
    SourceConfig,
    format_source,
    parse,
    parse_source,
)
from lemur_ray.recipes import get_recipe
from lemur_ray.serve.config import ServeJob
from lemur_ray.train.job_arguments import RunJob, TrainingJob, parse_job
from tests.config.recipe_fields import fields_of


def test_help_describes_every_field_of_a_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        parse_job(TrainingJob, ["--help-all"], prog="pretrain.py")
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    text = re.sub(r"(--[a-z.-]+), --[a-z.]*no-[a-z-]+", r"\1", text)
    for name in fields_of(Recipe()):
        flag = f" --{name.replace('_', '-')} "
        assert flag in text, f"{flag} is not in --help-all"
        words = text.partition(flag)[2].partition(" --")[0].partition("(default")[0].split()
        assert len(words) > 3, f"{flag} has no description"


def test_a_bool_is_a_flag_or_its_negation_and_the_earlier_form_is_the_same_run() -> None:
    bare = parse_job(RunJob, ["nano", "--mesh.use-gpu", "--no-keep-step", "--data.no-mask-documents"], prog="p")
    words = ["nano", "--mesh.use-gpu", "True", "--keep-step=False", "--data.mask-documents", "False"]
    assert parse_job(RunJob, words, prog="p") == bare
    assert (bare.recipe.mesh.use_gpu, bare.keep_step, bare.recipe.data.mask_documents) == (True, False, False)
    assert parse_job(RunJob, [*words, "--out", "True"], prog="p").out == "True"


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
        ("engine.prefill-tiles", "-1"),
        ("engine.context", "-5"),
        ("engine.compile-threads", "0"),
        ("engine.max-slots", "0"),
        ("engine.cache-bytes", "-1"),
        ("engine.max-queue", "-1"),
        ("port", "99999999"),
        ("num-cpus", "-1.0"),
    ],
)
def test_a_server_of_an_impossible_size_is_refused_by_name_with_code_2(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(ServeJob, [f"--{flag}={value}"], prog="serve.py")
    assert end.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"{flag.split('.')[-1].replace('-', '_')} is {value}: expected" in said


def test_instruct_says_in_its_help_what_its_own_defaults_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "jobs"))
    with pytest.raises(SystemExit):
        importlib.import_module("instruct").main(["--help-all"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Empty: the run nano." in text
    assert "Empty: it is built, in instruct/<name of the recipe>, or in the run's folder in a bucket." in text
    assert "the embedded corpus, built first" not in text
    assert "random parameters" not in text
