"""Preflight of an improvement run, and its folder: checks every input before anything is started."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemur_ray.config.config_file import CONFIG_FILE, config_text
from lemur_ray.host.home import find_model, resolve_out
from lemur_ray.improve.config import BadInput, ImproveConfig
from lemur_ray.improve.learner import LearnerSpec, check_same
from lemur_ray.improve.outcome import RESULT, last_evaluation
from lemur_ray.improve.task_sets import TaskSets, task_sets
from lemur_ray.recipes.nano_improve import RECIPE
from lemur_ray.text.chat_template import TemplateError
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import read_files
from lemur_ray.train.run.folder import RunFolderError, check_writable, read_object, write_file, write_json
from lemur_ray.weights.checkpoints import fixed_checkpoint, weights_of
from lemur_ray.weights.open_model import MODEL_ERRORS, OpenChatModel, open_chat_model


@dataclass(frozen=True)
class Prepared:
    """A run whose inputs have been checked: configuration, what the learner trains, tokenizer and tasks."""

    config: ImproveConfig
    learner: LearnerSpec
    tokenizer: Tokenizer
    tasks: TaskSets

    @property
    def out(self) -> Path:
        return Path(self.learner.out)

    def open_folder(self) -> Mapping[str, Any] | None:
        """Prepare the run folder: write recipe, configuration and tokenizer files, or compare those of an earlier
        start. The caller holds the folder's lock. Returns the content of ``result.json`` if the run is finished, else
        None. Raises BadInput if it is another run's folder."""
        spec, recipe = self.learner, self.learner.recipe
        try:
            written = read_object(f"{spec.out}/recipe.json")
        except FileNotFoundError:
            if (self.out / "checkpoints").exists():
                raise BadInput(
                    f"--out {spec.out}: it has checkpoints and no recipe.json: choose another folder"
                ) from None
            for name, content in _tokenizer_files(spec.init_from).items():
                write_file(f"{spec.out}/{name}", content)
            about = {"recipe": dataclasses.asdict(recipe), "hash": recipe.hash, "init_from_path": spec.init_from}
            write_file(f"{spec.out}/{CONFIG_FILE}", config_text(self.config).encode())
            # Last, as it marks a whole folder.
            write_json(f"{spec.out}/recipe.json", {**about, "described": spec.described})
            return None
        except ValueError as error:
            raise BadInput(str(error)) from error
        try:
            check_same(written.get("described") or {}, spec.described, f"--out {spec.out}")
        except RunFolderError as error:
            raise BadInput(str(error)) from error
        result = read_object(f"{spec.out}/{RESULT}") if (self.out / RESULT).exists() else None
        wanted = self.config.compare_to
        if result is not None and wanted and result.get("compared_to", {}).get("run") != wanted:
            raise BadInput(
                f"--compare-to {wanted}: the run in {spec.out} is finished without it: give it to a run that goes on, "
                "for example to the control"
            )
        return result


def prepare(config: ImproveConfig) -> Prepared:
    """Check a configuration: flags, model, tokenizer, tasks, teacher, folder. Raises BadInput, with one line,
    and RunFolderError if the folder is not writable."""
    config.check()
    try:
        init_from = fixed_checkpoint(find_model(config.init_from, buckets=True))
        model = open_chat_model(init_from)
        template_of(model.tokenizer)
    except (*MODEL_ERRORS, TemplateError) as error:
        raise BadInput(f"--init-from {config.init_from}: {error}") from error
    if not _tokenizer_files(init_from):
        raise BadInput(f"--init-from {config.init_from}: it is no folder with a tokenizer: expected a run or a model")
    out = _folder(config, model, init_from)
    recipe = replace(config.recipe, model=model.source.config)
    if config.recipe.model not in (RECIPE.model, recipe.model):
        raise BadInput(f"--model.*: the model's shape is that of --init-from {config.init_from}: leave these flags out")
    if recipe.data.seq_len > recipe.model.max_seq_len:
        context = recipe.model.max_seq_len
        raise BadInput(f"--data.seq-len {recipe.data.seq_len}: expected at most {context}, the model's context")
    described = json.loads(json.dumps(config.described(recipe, weights_of(init_from))))
    try:
        tasks = task_sets(config)
    except (ValueError, OSError) as error:
        raise BadInput(str(error)) from error
    if config.compare_to:
        played = {episode.key.task for episode in last_evaluation(config.compare_to)[1]}
        if not played & {task.id for task in tasks.held_out.tasks}:
            raise BadInput(f"--compare-to {config.compare_to}: it has none of the held-out tasks of this run")
    return Prepared(config, LearnerSpec(recipe, out, init_from, described, config.float64), model.tokenizer, tasks)


def _folder(config: ImproveConfig, model: OpenChatModel, init_from: str) -> str:
    out = resolve_out(config.out, f"runs/{model.name}-2")
    if "://" in out:
        raise BadInput(f"--out {out}: rounds are written to a local folder, expected no URL")
    start = Path(init_from).resolve()
    if Path(out).resolve() in (start, *start.parents[:2]):
        raise BadInput(f"--out {out}: it is the folder of --init-from, which would be overwritten: choose another one")
    check_writable(out)
    return out


def _tokenizer_files(init_from: str) -> dict[str, bytes]:
    """Files of the tokenizer in the folder of a model, or of the run that a checkpoint belongs to."""
    return read_files(init_from) or read_files(init_from.rsplit("/", 2)[0])
