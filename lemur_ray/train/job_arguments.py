"""The command line of training jobs: ``[RECIPE] --flags``, where every field of the recipe is a flag."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import tyro

from lemur_ray.config import Recipe, parse, topics
from lemur_ray.config.config_file import take_config
from lemur_ray.recipes import NAMES, get_recipe

T = TypeVar("T")
Flat = Annotated[Recipe, tyro.conf.arg(name="")]
"""A recipe whose flags have no prefix: ``--train.steps``, not ``--recipe.train.steps``."""


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """Train a model on a corpus folder; the same command again resumes. First argument: a recipe, by default nano."""

    HELP = topics("pretrain", "training")

    corpus: str = ""
    """Corpus folder or URI (jobs/build_corpus.py makes them). Empty: the embedded corpus, built if it is missing (for a
    run in a bucket: in the run's folder)."""
    out: str = ""
    """Run folder, absolute, a URI, or relative to $LEMUR_HOME. Empty: runs/<name of the recipe>."""
    init_from: str = ""
    """Run or its name, checkpoint or Hugging Face folder whose parameters start the run. Empty: random parameters."""
    resume_from: str = ""
    """Run or its name, or a checkpoint of it, whose parameters and moments this run continues under its own recipe."""
    keep_step: bool = True
    """With --resume-from: continue the other run's step count; --train.steps then counts the steps of both runs."""
    keep_guard: bool = True
    """With --resume-from: keep the other run's spike guard, its window of recent losses and gradient norms."""
    recipe: Flat = dataclasses.field(default_factory=Recipe)


@dataclasses.dataclass(frozen=True)
class RunJob(TrainingJob):
    """Train a model on a corpus folder; the same command again resumes. First argument: a recipe, by default nano."""

    preflight: bool = False
    """Only check what needs no devices (recipe, mesh, corpus, model, tokenizers, sinks, run folder), and end."""


def parse_job(
    config: type[T], argv: Sequence[str] | None = None, *, prog: str, recipe: str = "nano", **fixed: Any
) -> T:
    """Parse ``[RECIPE] --flags`` into a job's dataclass, which has a field ``recipe``. recipe: name of the recipe if
    neither the command line nor the key ``recipe`` of the ``--config`` file gives one. fixed: default values of the
    job's other fields. Exits with code 2 on an unknown recipe or flag, naming the nearest. argv: words of the command
    line, by default those of this process. prog: name of the job's file, for messages."""
    arguments, file = take_config(sys.argv[1:] if argv is None else argv)
    named = file.pop("recipe", recipe)
    name = arguments.pop(0) if (is_given := bool(arguments and not arguments[0].startswith("-"))) else named
    if is_given and str(file.values.get("name", name)) != name:
        stored = f"{file.path} holds the whole configuration of {file.values['name']}"
        print(f"{prog}: {name} on the command line, but {stored}: leave one of them out", file=sys.stderr)
        raise SystemExit(2)
    try:
        chosen = get_recipe(name)
    except ValueError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    default = config(recipe=chosen, **fixed)  # type: ignore[call-arg]
    return parse(config, arguments, default=default, prog=f"{prog} [{'|'.join(NAMES)}]", file=file)
