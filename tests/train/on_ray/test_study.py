"""The mixture study: what its trials are, that they resume, and what is drawn of them."""

import csv
import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from lemur_ray.config import Recipe
from lemur_ray.report.inputs import ReportError
from lemur_ray.report.pages.pretraining.mixture_page import render_study
from lemur_ray.report.statistics import t_interval
from lemur_ray.train.run.folder import write_json
from lemur_ray.train.study import Trial, make_trials, parse_ratio, run_trial


def tiny(small_recipe: Callable[..., Recipe], **changes: object) -> Recipe:
    return small_recipe(**{"steps": 6, "checkpoint_every_steps": 3, "log_every_steps": 3, **changes})


def test_trials_differ_in_ratio_and_seed_alone_and_the_mixture_is_the_ratio(
    tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe]
) -> None:
    from lemur_ray.corpus.manifest import read_manifest
    from lemur_ray.plan.plan import plan_for

    trials = make_trials(
        tiny(small_recipe, steps=50), str(corpus), str(tmp_path), ratios=("1:3", "1:0", "0:1"), seeds=2
    )
    assert [(trial.ratio, trial.seed) for trial in trials][:4] == [("1:3", 0), ("1:0", 0), ("0:1", 0), ("1:3", 1)]
    assert len({trial.run.out for trial in trials}) == len({trial.run.recipe.hash for trial in trials}) == 6
    shares = []
    for trial in trials[:3]:
        rows = plan_for(trial.run.recipe, read_manifest(corpus)).summary()
        shares.append(sum(row["built_share"] for row in rows if row["kind"] == "code"))
        assert shares[-1] == pytest.approx(trial.code_share, abs=0.02)
    assert shares[1:] == [1.0, 0.0]


@pytest.mark.parametrize("text", ["", "1", "a:b", "-1:2", "0:0", "1:2:3", "nan:1"])
def test_a_ratio_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected CODE:TEXT"):
        parse_ratio(text)


def test_a_study_needs_both_kinds_and_one_worker(
    tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe]
) -> None:
    import dataclasses
    import shutil

    recipe = small_recipe()
    two = dataclasses.replace(recipe, mesh=dataclasses.replace(recipe.mesh, num_workers=2))
    with pytest.raises(ValueError, match="one process on CPUs or one GPU"):
        make_trials(two, str(corpus), str(tmp_path))
    with pytest.raises(ValueError, match="choose a folder"):
        make_trials(recipe, str(corpus), "gs://bucket/study")
    with pytest.raises(ValueError, match="expected at least 1"):
        make_trials(recipe, str(corpus), str(tmp_path), seeds=0)
    shutil.copytree(corpus, tmp_path / "code")
    manifest = json.loads((corpus / "manifest.json").read_text())
    manifest["sources"] = [source for source in manifest["sources"] if source["kind"] == "code"]
    (tmp_path / "code" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="expected both code and text"):
        make_trials(recipe, str(tmp_path / "code"), str(tmp_path))


def finish(trial: Trial, text_loss: float) -> None:
    """What a finished trial leaves, with a given loss."""
    Path(trial.run.out).mkdir()
    write_json(f"{trial.run.out}/recipe.json", {"recipe": {}, "hash": trial.run.recipe.hash})
    measured = {
        f"heldout/{kind}/{metric}": text_loss for kind in ("code", "text") for metric in ("loss", "bits_per_byte")
    }
    mixture = [{"kind": "code", "built_epochs": 0.5}, {"kind": "text", "built_epochs": 1.5}]
    write_json(f"{trial.run.out}/result.json", {**measured, "mixture": mixture})


def test_the_page_shows_what_has_finished_and_says_what_has_not(
    tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe]
) -> None:
    trials = make_trials(tiny(small_recipe), str(corpus), str(tmp_path), ratios=("1:3", "1:0"), seeds=2)
    with pytest.raises(ReportError, match="no trial has finished yet"):
        render_study(tmp_path)
    for trial, loss in zip(trials, (4.0, 3.0, 5.0), strict=False):
        finish(trial, loss)
    numbers = render_study(tmp_path)
    assert numbers["missing"] == ["trial 1to0-seed1 has not finished: it is left out"]
    mixed, code = numbers["results"]
    assert (mixed["ratio"], code["ratio"]) == ("1:3", "1:0")
    assert mixed["epochs"] == {"code": 0.5, "text": 1.5}
    assert mixed["text/loss"]["values"] == [4.0, 5.0]
    assert mixed["text/loss"]["mean"] == 4.5
    assert mixed["text/loss"]["low"] == pytest.approx(4.5 - 12.7062 / 2, abs=1e-3)
    assert code["text/loss"]["low"] is None, "one seed has no interval"
    for name in ("bits_per_byte.svg", "loss.svg"):
        drawing = ElementTree.fromstring((tmp_path / name).read_text())
        assert len([e for e in drawing.iter() if e.tag.endswith("polyline")]) == 2
    with (tmp_path / "study_results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 8
    page = (tmp_path / "index.html").read_text()
    for part in ("1 : 3", "code alone", "A.1.2", "1to0-seed1 has not finished", "95 % t-intervals"):
        assert part in page


def test_a_t_interval_is_that_of_the_tables() -> None:
    mean, low, high = t_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert low == pytest.approx(2.0 - 4.30265 / math.sqrt(3), abs=1e-4)
    assert high == pytest.approx(2.0 + 4.30265 / math.sqrt(3), abs=1e-4)
    assert t_interval([5.0]) == (5.0, None, None)


@pytest.mark.slow
def test_trials_run_as_ray_tasks_and_one_that_fails_does_not_end_the_others(
    ray_local: str, tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe]
) -> None:
    from lemur_ray.train.on_ray.trials import run_trials

    trials = make_trials(tiny(small_recipe), str(corpus), str(tmp_path), ratios=("1:1", "10:1"))
    (tmp_path / "10to1-seed0").mkdir()
    (tmp_path / "10to1-seed0" / "recipe.json").mkdir()  # cannot be read or written
    said: list[str] = []
    failed = run_trials(trials, said.append)
    assert list(failed) == ["10to1-seed0"]
    assert any("trial 10to1-seed0 failed" in line for line in said)
    assert any("trial 1to1-seed0 done" in line and "bits per byte: code" in line for line in said)
    result = json.loads((tmp_path / "1to1-seed0" / "result.json").read_text())
    assert run_trial(trials[0].run) == result, "a finished trial is only read"
