"""Help on one screen, and files of flags that a run writes and ``--config`` reads."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import tyro

from lemur_ray.config import config_file, parse
from lemur_ray.config.config_file import config_text
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.rollout.benchmark_tasks import parse_evaluation
from lemur_ray.serve.config import ServeJob
from lemur_ray.train.job_arguments import RunJob, parse_job
from tests.conftest import ROOT

JOBS = sorted(path.stem for path in (ROOT / "jobs").glob("[a-z]*.py"))
TOPICS_OF = {
    "pretrain": "RunJob", "instruct": "InstructJob", "instruct_table": "TableJob", "plan_pod": "PlanJob",
    "mixture_study": "StudyJob", "build_corpus": "Arguments",
}  # fmt: skip
"""Job -> its dataclass, whose topics name the flags that its help shows."""
ONE_SCREEN = 45


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Function that returns what a job prints to stdout and ends with code 0."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("LEMUR_DATA", raising=False)  # help shows a default that is set, in one line more
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))

    def printed(job: str, *words: str) -> str:
        with pytest.raises(SystemExit) as end:
            importlib.import_module(job).main(list(words))
        assert not end.value.code
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize("job", JOBS)
def test_the_help_of_a_command_is_one_screen(shown: Any, job: str) -> None:
    text = shown(job, "--help")
    assert len(text.splitlines()) <= ONE_SCREEN
    assert "True,False" not in text + shown(job, "--help-all"), "a bool is --x or --no-x"
    if job == "doctor":
        return
    assert "--config FILE.yaml" in text
    assert "--help-all" in text
    topics = getattr(importlib.import_module(job), TOPICS_OF[job]).HELP if job in TOPICS_OF else {}
    for name in (name for names in topics.values() for name in names):
        assert f"  --{name.replace('_', '-')} " in text, name


@pytest.mark.parametrize("benchmark", ["mint/gsm8k", "webarena/webarena"])
def test_the_help_of_eval_shows_the_flags_of_the_benchmark_and_everything_that_is_no_field(
    shown: Any, benchmark: str
) -> None:
    text = shown("agent_eval", "--benchmark", benchmark, "--help")
    assert len(text.splitlines()) <= ONE_SCREEN
    for words in ("--list", "--suite NAME", "--check-gold", "gym:", "harbor:", "replies:FILE", "options of the benchm"):
        assert words in text, words
    everything = shown("agent_eval", "--help-all")
    assert all(flag in everything for flag in ("--list", "--suite NAME", "--check-gold", "--top-p"))


@pytest.mark.parametrize("recipe", ["nano", "lemur-70b-chat", "qwen3-8b"])
def test_a_written_training_configuration_is_the_same_run(recipe: str, tmp_path: Path) -> None:
    edits = ["--train.skip-rows", "3", "5", "8", "9", "--data.sources", "a:code:2.5", "b:text:1:0.5", "--out", "x y"]
    job = parse_job(RunJob, [recipe, *edits, "--optimizer.peak-lr", "1e-7", "--preflight"], prog="p")
    (tmp_path / "c.yaml").write_text(config_text(job))
    again = parse_job(RunJob, ["--config", str(tmp_path / "c.yaml")], prog="p")
    assert again == job
    assert again.recipe.hash == job.recipe.hash


def test_a_written_configuration_of_tuning_and_of_serving_is_the_same(tmp_path: Path, shown: Any) -> None:
    kind = importlib.import_module("instruct").InstructJob
    job = parse_job(kind, ["lemur-7b-chat", "--conversations", "a b", "c", "--lora.rank", "4"], prog="p")
    (tmp_path / "c.yaml").write_text(config_text(job))
    assert parse_job(kind, [f"--config={tmp_path}/c.yaml"], prog="p", recipe="nano-chat") == job
    serving = ServeJob.parse(["--no-ray", "--engine.max-slots", "8", "--engine.no-native"])
    (tmp_path / "s.yaml").write_text(config_text(serving))
    assert ServeJob.parse(["--config", str(tmp_path / "s.yaml")]) == serving


def test_a_written_improvement_run_has_a_flag_and_a_group_of_the_same_name(tmp_path: Path) -> None:
    default = ImproveConfig()
    words = ["--data", "a folder", "--data.seq-len", "512", "--train.steps", "8", "--control", "--mesh.no-use-gpu"]
    config = parse(ImproveConfig, words, default=default, prog="p")
    (tmp_path / "c.yaml").write_text(config_text(config))
    again = parse(ImproveConfig, ["--config", str(tmp_path / "c.yaml")], default=default, prog="p")
    assert again == config
    assert (again.data, again.recipe.data.seq_len) == ("a folder", 512)
    assert again.described(again.recipe, "w") == config.described(config.recipe, "w")


@pytest.mark.parametrize("benchmark", ["alfworld/text", "intercode/sql", "mint/gsm8k", "webarena/standin"])
def test_a_written_evaluation_is_the_same(benchmark: str, tmp_path: Path) -> None:
    config = parse_evaluation(["--policy", "random", "--limit", "3", "--top-p", "0.5", "--resend-reasoning"], benchmark)
    (tmp_path / "c.yaml").write_text(config_text(config, flat=True))
    assert parse_evaluation(["--config", str(tmp_path / "c.yaml")], "gsm8k") == config


def test_flags_of_the_command_line_win(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "recipe: llama2-7b\ncorpus: there\ntrain: {steps: 7, seed: 3}\noptimizer.peak_lr: 1e-4\nkeep-step: false\n"
    )
    words = ["--train.steps=9", "--config", str(tmp_path / "c.yaml"), "--corpus", "here"]
    job = parse_job(RunJob, words, prog="p")
    assert (job.recipe.name, job.recipe.train.steps, job.recipe.train.seed, job.corpus) == ("llama2-7b", 9, 3, "here")
    assert (job.recipe.optimizer.peak_lr, job.keep_step) == (1e-4, False)
    assert parse_job(RunJob, ["nano", *words], prog="p").recipe.name == "nano"
    (tmp_path / "e.yaml").write_text("benchmark: intercode/sql\nresend_reasoning: true\nactors: null\n")
    config = parse_evaluation(["--config", str(tmp_path / "e.yaml"), "--no-resend-reasoning"], "alfworld/text")
    assert (config.benchmark, config.resend_reasoning, config.actors) == ("intercode/sql", False, None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("train: {stps: 5}", "there is no flag 'train.stps': did you mean 'train.steps'?"),
        ("steps: 5", "did you mean 'train.steps'?"),
        ("train: 5", "train is a group of flags: expected values of train.steps"),
        ("- a\n- b", "expected flags and their values"),
        ("a: [", "expected a YAML file"),
        ("train: {steps: many}", "flags that are not on the command line are those of"),
        ("lemur_ray: 0.0.1\ntrain: {warmth: 5}", "(lemur-ray 0.0.1 wrote it, this is"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_code_2(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(SystemExit) as end:
        parse_job(RunJob, ["--config", str(tmp_path / "c.yaml")], prog="p")
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_values_of_a_file_are_the_text_that_stands_there(tmp_path: Path) -> None:
    """YAML 1.1 would read 10:20 to base 60, 007 in octal and no as false."""
    (tmp_path / "a.yaml").write_text("tasks: 10:20\npolicy_model: no\nout:\ntemperature: 1e-1\nlimit: 007\n")
    config = parse_evaluation(["--config", str(tmp_path / "a.yaml"), "--policy", "openai:http://h/v1"], "gsm8k")
    assert (config.tasks, config.policy_model, config.out, config.temperature) == ("10:20", "no", "", 0.1)
    assert config.limit == 7


@dataclasses.dataclass(frozen=True)
class Switches:
    overwrite: bool = False
    check: bool = True
    label: str = ""


def test_a_bool_may_be_quoted_and_a_text_may_be_true(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('overwrite: "True"\ncheck: "False"\nlabel: true\n')
    assert parse(Switches, ["--config", str(tmp_path / "a.yaml")]) == Switches(True, False, "True")


class Form(enum.StrEnum):
    LONG = "long"


@dataclasses.dataclass(frozen=True)
class Mixed:
    form: Form = Form.LONG
    share: float = float("inf")
    folders: Annotated[tuple[str, ...], tyro.conf.Positional] = ()


@dataclasses.dataclass(frozen=True)
class Required:
    folders: Annotated[tuple[str, ...], tyro.conf.Positional]
    port: int = 1


def test_enumerations_infinities_and_positional_arguments_go_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(config_text(Mixed()))
    assert parse(Mixed, ["--config", str(tmp_path / "a.yaml"), "x", "y"]) == Mixed(folders=("x", "y"))
    (tmp_path / "b.yaml").write_text("port: 7")
    assert parse(Required, ["--config", str(tmp_path / "b.yaml"), "x"]) == Required(("x",), 7)


def test_the_published_protocol_and_a_recipe_of_the_command_line_win(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--benchmark", "intercode/sql", "--policy", "openai:http://h/v1"]
    plain = parse_evaluation(words, "")
    (tmp_path / "a.yaml").write_text(config_text(plain, flat=True))
    published = parse_evaluation([*words, "--protocol", "published"], "")
    assert published != plain
    assert parse_evaluation([*words, "--config", str(tmp_path / "a.yaml"), "--protocol", "published"], "") == published
    (tmp_path / "b.yaml").write_text(config_text(parse_job(RunJob, ["nano"], prog="pretrain"), flat=False))
    with pytest.raises(SystemExit) as end:
        parse_job(RunJob, ["nano-chat", "--config", str(tmp_path / "b.yaml")], prog="pretrain")
    assert end.value.code == 2
    assert "holds the whole configuration of nano: leave one of them out" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused_and_a_relative_one_may_be_in_lemur_home(
    lemur_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--config", "none.yaml"], ["--config"]):
        with pytest.raises(SystemExit) as end:
            parse_job(RunJob, words, prog="p")
        assert end.value.code == 2
        assert "expected" in capsys.readouterr().err
    (lemur_home / "runs").mkdir(parents=True)
    (lemur_home / "runs" / "c.yaml").write_text("out: z")
    assert parse_job(RunJob, ["--config", "runs/c.yaml"], prog="p").out == "z"


def test_a_file_of_an_older_version_names_the_flags_that_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config_text(RunJob()).replace("  seed: 0\n  checkpoint", "  checkpoint").replace("keep_guard: true\n", "")
    (tmp_path / "c.yaml").write_text(text)
    monkeypatch.setattr(config_file, "__version__", "9.0.0")
    assert parse_job(RunJob, ["--config", str(tmp_path / "c.yaml")], prog="p").keep_guard
    printed = capsys.readouterr().err
    assert "this is 9.0.0: it lacks --keep-guard, --train.seed, at their defaults" in printed


def test_passwords_are_not_written() -> None:
    @dataclasses.dataclass(frozen=True)
    class Options:
        url: str = dataclasses.field(default="", metadata={"stored_as": lambda url: url.replace("secret", "***")})

    assert "me:***@here" in config_text(Options("me:secret@here"))


def teardown_module() -> None:
    for name in (*JOBS, "_path"):
        sys.modules.pop(name, None)
