"""The training loop in one process: metrics, resume, guard, evaluation, bad input."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.config import Recipe
from lemur_ray.train.metrics import MetricsLog, Window
from lemur_ray.train.run.console import progress_lines
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from tests.train.clock_fields import CLOCK

Batches = Iterator[dict[str, np.ndarray]]
RunHere = Callable[..., dict]
Losses = Callable[[Path], dict[int, float]]


class Killed(BaseException):
    """Stands for the end of the process in the middle of a run."""


def killed_after(steps: int) -> Callable[[Batches], Batches]:
    def feed(batches: Batches) -> Batches:
        for number, batch in enumerate(batches):
            if number == steps:
                raise Killed
            yield batch

    return feed


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return tmp_path_factory.mktemp("unbroken") / "run"


@pytest.fixture
def reference(
    unbroken: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], read_losses: Losses
) -> dict[int, float]:
    """Losses of the run that nothing interrupted."""
    if not unbroken.exists():
        run_here(small_recipe(), unbroken)
    return read_losses(unbroken)


def test_a_run_learns_and_leaves_a_complete_folder(
    reference: dict[int, float], unbroken: Path, small_recipe: Callable[..., Recipe]
) -> None:
    assert list(reference) == list(range(1, 13))
    assert reference[12] < reference[1] - 0.5
    result = json.loads((unbroken / "result.json").read_text())
    assert result["loss"] == reference[12]
    assert result["rows"] == 24
    assert result["tokens"] == 24 * 64
    assert result["parameters"] == small_recipe().model.num_params
    assert Path(result["checkpoint"]).is_dir()
    assert json.loads((unbroken / "recipe.json").read_text())["hash"] == small_recipe().hash
    assert (unbroken / "tokenizer.json").is_file()
    line = json.loads((unbroken / "metrics.jsonl").read_text().splitlines()[0])
    assert {"step", "rows", "tokens", "loss", "lr", "grad_norm", "tokens_per_s", "time_s", "flops_per_s_6n"} <= set(
        line
    )
    assert any(key.startswith("loss/") for key in line)


@pytest.mark.parametrize("after", [1, 4, 6, 11])
def test_a_run_killed_at_any_step_repeats_the_unbroken_one_bit_for_bit(
    after: int,
    tmp_path: Path,
    reference: dict[int, float],
    run_here: RunHere,
    small_recipe: Callable[..., Recipe],
    read_losses: Losses,
) -> None:
    with pytest.raises(Killed):
        run_here(small_recipe(), tmp_path / "run", feed=killed_after(after))
    lines: list[str] = []
    result = run_here(small_recipe(), tmp_path / "run", lines=lines)
    assert read_losses(tmp_path / "run") == reference
    assert result["replays_that_differ"] == []
    assert result["first_step"] == after // 4 * 4
    assert any("resumed" in line for line in lines) == (after >= 4)


def test_windows_of_several_steps_are_the_same_after_a_resume_inside_one(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    recipe = small_recipe(log_every_steps=3, checkpoint_every_steps=4)
    run_here(recipe, tmp_path / "whole")
    with pytest.raises(Killed):
        run_here(recipe, tmp_path / "broken", feed=killed_after(5))
    run_here(recipe, tmp_path / "broken")

    def lines(name: str) -> list[dict]:
        records = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [{key: value for key, value in record.items() if key not in CLOCK} for record in records]

    assert lines("broken") == lines("whole")
    assert [record["step"] for record in lines("whole")] == [3, 6, 9, 12]


def test_a_run_killed_between_its_last_checkpoint_and_its_result_is_finished_by_the_next(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    first = run_here(small_recipe(), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    again = run_here(small_recipe(), tmp_path / "run")
    assert again["loss"] == first["loss"]
    assert again["first_step"] == 12


def test_a_finished_run_says_so(tmp_path: Path, corpus: Path, run_here: RunHere, small_recipe: Callable) -> None:
    from lemur_ray.train.run.folder import Run, prepare

    run_here(small_recipe(), tmp_path / "run")
    found = prepare(Run(small_recipe(), str(corpus), str(tmp_path / "run")))
    assert found is not None
    assert found["steps"] == 12


def test_another_recipe_in_the_same_folder_is_refused_with_the_fields_that_differ(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    run_here(small_recipe(), tmp_path / "run")
    other = small_recipe(steps=20)
    other = dataclasses.replace(other, optimizer=dataclasses.replace(other.optimizer, peak_lr=1e-3))
    with pytest.raises(RunFolderError) as error:
        run_here(other, tmp_path / "run")
    assert "recipe.train.steps: 12 != 20" in str(error.value)
    assert "recipe.optimizer.peak_lr: 0.003 != 0.001" in str(error.value)
    assert "model" not in str(error.value)


def test_logging_and_checkpoint_intervals_may_change_in_a_resumed_run(
    tmp_path: Path,
    reference: dict[int, float],
    run_here: RunHere,
    small_recipe: Callable[..., Recipe],
    read_losses: Losses,
) -> None:
    with pytest.raises(Killed):
        run_here(small_recipe(), tmp_path / "run", feed=killed_after(6))
    run_here(small_recipe(checkpoint_every_steps=5, keep_checkpoints=1), tmp_path / "run")
    assert read_losses(tmp_path / "run") == reference


def test_rows_out_of_order_are_noticed(tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]) -> None:
    def swapped(batches: Batches) -> Batches:
        for batch in batches:
            yield {name: array[::-1] for name, array in batch.items()}

    with pytest.raises(AssertionError, match=r"got plan rows \[1, 0\], expected \[0, 1\]"):
        run_here(small_recipe(), tmp_path / "run", feed=swapped)


def poisoned(bad: set[int]) -> Callable[[Batches], Batches]:
    """Batches whose weights are NaN at the given steps (counted from 0 of the whole run)."""

    def feed(batches: Batches) -> Batches:
        for batch in batches:
            if int(batch["row"][0]) // 2 in bad:
                batch["loss_weights"] = batch["loss_weights"] * np.float32("nan")
            yield batch

    return feed


def test_a_step_that_is_not_finite_is_skipped_and_its_rows_are_logged(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    lines: list[str] = []
    result = run_here(small_recipe(), tmp_path / "run", feed=poisoned({5}), lines=lines)
    records = {r["step"]: r for r in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())}
    assert records[6]["loss"] is None
    assert records[6]["skipped_rows"] == [[10, 12]]
    assert result["skipped_steps"] == 1
    assert records[12]["loss"] < records[1]["loss"]
    assert any("rows [10, 12)" in line for line in lines)


def test_too_many_skips_in_a_row_end_the_run_with_the_rows_and_it_can_be_resumed(
    tmp_path: Path, reference: dict[int, float], run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    recipe = small_recipe(max_skips_in_a_row=3)
    with pytest.raises(TrainingStopped, match=r"3 updates in a row.*step 9, rows \[16, 18\)"):
        run_here(recipe, tmp_path / "run", feed=poisoned({6, 7, 8}))
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_batch_that_does_not_split_is_an_error_before_anything_is_computed(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    with pytest.raises(TrainingStopped, match="2 rows does not split over 4"):
        run_here(small_recipe(microbatches=4), tmp_path / "run")


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path, run_here: RunHere, small_recipe: Callable) -> None:
    with pytest.raises(RunFolderError, match=r"nowhere is not a corpus: it has no manifest.json"):
        run_here(small_recipe(), tmp_path / "run", source=tmp_path / "nowhere")


def test_an_out_folder_that_cannot_be_written_is_an_error_up_front(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunFolderError, match="is not writable"):
        run_here(small_recipe(), tmp_path / "file" / "run")


def test_an_out_folder_without_room_is_told_apart_from_one_that_may_not_be_written(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.pipe_file", full)
    with pytest.raises(RunFolderError, match="has no room left: make some there"):
        run_here(small_recipe(), tmp_path / "run")


def test_a_torn_last_line_of_the_metrics_is_cut_off_and_written_again(tmp_path: Path, read_losses: Losses) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(str(path))
    log.write({"step": 1, "loss": 0.1})
    log.write({"step": 2, "loss": 0.1 + 0.2})
    path.write_bytes(path.read_bytes()[:-4])
    log = MetricsLog(str(path))
    assert log.losses == {1: 0.1}
    log.write({"step": 2, "loss": 0.1 + 0.2})
    assert read_losses(tmp_path) == {1: 0.1, 2: 0.30000000000000004}


def test_a_replayed_line_keeps_the_first_value_and_a_different_one_is_counted(
    tmp_path: Path, read_losses: Losses
) -> None:
    log = MetricsLog(str(tmp_path / "metrics.jsonl"))
    log.write({"step": 1, "loss": 0.5})
    log.write({"step": 1, "loss": 0.5})
    assert (log.replayed, log.differing) == (1, [])
    log.write({"step": 1, "loss": 0.25})
    assert log.differing == [1]
    assert read_losses(tmp_path) == {1: 0.5}


def test_a_window_survives_json_exactly() -> None:
    window = Window()
    metrics = {
        "skipped": np.bool_(False),
        "weight_sum": np.float32(3.3),
        "loss": np.float32(1.1),
        "source_loss_sum": np.array([0.1, 0.0], np.float32),
        "source_weight_sum": np.array([3.3, 0.0], np.float32),
    }
    window.add(metrics, ["a", "b"], np.arange(2))
    assert Window(**json.loads(json.dumps(window.to_json()))) == window
    assert set(window.values()) == {"loss", "loss/a"}


def test_the_progress_lines_say_what_a_person_wants_to_know() -> None:
    record = {"step": 20, "loss": 2.5, "loss/python": 2.25, "tokens_per_s": 5000.0, "step_s": 0.2048, "eta_s": 65.0}
    [line] = progress_lines(record, 1000, 10)
    for part in (
        "20/1000",
        " 2%",
        "loss 2.5000",
        "python 2.250",
        "5,000 tokens/s",
        "0.205 s/step",
        "1:05 left",
        "checkpoint 10",
    ):
        assert part in line
    measured = {"heldout/code/loss": 1.0, "heldout/code/bits_per_byte": 1.5, "heldout_source/c/bits_per_byte": None}
    more = {f"loss/{name}": 2.0 for name in "abcd"} | {"mfu_6n": 0.5, "mfu_6n_causal": 0.52, "eta_s": 3e5, "loss": None}
    line, held_out = progress_lines({**record, **measured, **more}, 1000)
    assert "[" not in line, "a line that is all sources"
    assert "MFU 50.0% 6n, 52.0% 6n_causal" in line
    assert "loss - (all skipped)" in line
    assert "3 d 11 h left" in line
    assert held_out == "held out, bits per byte: code 1.500  (c -)"


def test_held_out_loss_is_measured_by_kind_and_by_source_in_nats_and_in_bits_per_byte(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], corpus: Path, read_losses: Losses
) -> None:
    from lemur_ray.corpus.manifest import row_folder
    from lemur_ray.corpus.rows import RowReader
    from lemur_ray.text.tokenizer import Tokenizer

    recipe = small_recipe(eval_every_steps=5)
    result = run_here(recipe, tmp_path / "run")
    records = {r["step"]: r for r in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())}
    assert [step for step, record in records.items() if "heldout/code/loss" in record] == [5, 10, 12]
    assert result["heldout/text/loss"] < records[5]["heldout/text/loss"]

    rows = RowReader(row_folder(corpus, "heldout-docs")).read(np.arange(3))
    tokenizer = Tokenizer.load(corpus / "tokenizer.json")
    trained = rows.loss_weights > 0
    num_bytes = sum(len(tokenizer.token_bytes(int(token))) for token in rows.targets[trained])
    bits = result["heldout/text/loss"] * trained.sum() / np.log(2) / num_bytes
    assert result["heldout/text/bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    assert result["heldout_source/docs/bits_per_byte"] == result["heldout/text/bits_per_byte"]
    code = [result[f"heldout_source/{name}/loss"] for name in ("python", "shell")]
    assert min(code) < result["heldout/code/loss"] < max(code)
    run_here(small_recipe(eval_rows=0), tmp_path / "none")
    assert read_losses(tmp_path / "none") == read_losses(tmp_path / "run"), "measuring changed the run"


def test_a_run_starts_from_the_parameters_of_another_with_a_fresh_optimizer(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], read_losses: Losses
) -> None:
    first = run_here(small_recipe(eval_every_steps=1), tmp_path / "first")
    second = run_here(small_recipe(eval_every_steps=1), tmp_path / "second", init_from=str(tmp_path / "first"))
    assert second["init_from"] == str(tmp_path / "first")
    losses = read_losses(tmp_path / "second")
    assert losses[1] < read_losses(tmp_path / "first")[1] - 0.5
    assert second["loss"] < first["loss"]
    with pytest.raises(RunFolderError, match="init_from: "):
        run_here(small_recipe(eval_every_steps=1), tmp_path / "second", init_from="")
    (tmp_path / "first").rename(tmp_path / "moved")
    again = run_here(small_recipe(eval_every_steps=1), tmp_path / "second", init_from=str(tmp_path / "moved"))
    assert (again["loss"], again["first_step"]) == (second["loss"], again["steps"]), "trained again after a move"
    run_here(small_recipe(eval_every_steps=1, seed=5), tmp_path / "first")
    with pytest.raises(RunFolderError, match="init_from: "):
        run_here(small_recipe(eval_every_steps=1), tmp_path / "second", init_from=str(tmp_path / "first"))


def test_starting_from_another_architecture_names_the_fields_that_differ(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    run_here(small_recipe(), tmp_path / "first")
    wider = dataclasses.replace(small_recipe(), model=dataclasses.replace(small_recipe().model, ffn_dim=96))
    with pytest.raises(RunFolderError, match="ffn_dim: 64 != 96"):
        run_here(wider, tmp_path / "second", init_from=str(tmp_path / "first"))
    with pytest.raises(RunFolderError, match="no model at"):
        run_here(wider, tmp_path / "third", init_from=str(tmp_path / "nowhere"))
