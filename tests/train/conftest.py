"""A small corpus and a small recipe that every test of training shares."""

import dataclasses
import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, Recipe, TrainConfig
from lemur_ray.corpus.manifest import row_folder, write_manifest
from lemur_ray.corpus.rows import RowWriter
from lemur_ray.text.tokenizer import Tokenizer

SEQ_LEN = 64
TEXTS = ["def add(a, b): return a + b", "the cat sat on the mat and looked at the dog", "for i in range(10): print(i)"]


def write_corpus(folder: Path, *, seed: int = 0, rows: int = 40, heldout: bool = True) -> Path:
    """Three sources of packed rows (two of code) made of seeded draws from a few texts, and a held-out set of each."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer.train(TEXTS * 20, 320)
    tokenizer.save(folder / "tokenizer.json")
    rng = np.random.default_rng(seed)

    def fill(name: str, count: int) -> dict[str, int]:
        with RowWriter(row_folder(folder, name), SEQ_LEN, vocab_size=tokenizer.vocab_size) as writer:
            for _ in range(count):
                ids = np.concatenate([tokenizer.encode(TEXTS[int(i)]) for i in rng.integers(0, 3, 12)])
                writer.write([ids[:40], ids[40 : 40 + int(rng.integers(10, 24))]])
        return {"rows": count, "tokens": count * 55, "documents": count * 2}

    sources = [
        {"name": "python", "kind": "code", **fill("python", rows)},
        {"name": "shell", "kind": "code", **fill("shell", rows // 4)},
        {"name": "docs", "kind": "text", **fill("docs", rows // 2)},
    ]
    held_out = [
        {"name": "heldout-python", "kind": "code", "source": "python", **fill("heldout-python", 4)},
        {"name": "heldout-shell", "kind": "code", "source": "shell", **fill("heldout-shell", 1)},
        {"name": "heldout-docs", "kind": "text", "source": "docs", **fill("heldout-docs", 3)},
    ]
    manifest = {
        "tokenizer": "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "seq_len": SEQ_LEN,
        "sources": sources,
        "heldout": held_out if heldout else [],
    }
    write_manifest(folder, manifest)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus folder of 70 rows of 64 tokens."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "small")


@pytest.fixture(scope="session")
def small_recipe() -> Callable[..., Recipe]:
    """A recipe of about 40,000 parameters; keyword arguments replace fields of its train section."""

    def make(**train: object) -> Recipe:
        fields: dict[str, object] = {
            "steps": 12,
            "rows_per_step": 2,
            "checkpoint_every_steps": 4,
            "log_every_steps": 1,
            "keep_checkpoints": 2,
        }
        return Recipe(
            name="small",
            model=ModelConfig(
                vocab_size=320,
                num_layers=2,
                dim=32,
                ffn_dim=64,
                num_heads=2,
                num_kv_heads=1,
                head_dim=16,
                max_seq_len=SEQ_LEN,
            ),
            optimizer=OptimizerConfig(name="muon", peak_lr=3e-3, warmup_steps=2),
            data=DataConfig(seq_len=SEQ_LEN),
            train=dataclasses.replace(TrainConfig(), **{**fields, **train}),  # type: ignore[arg-type]
        )

    return make


@pytest.fixture
def run_here(corpus: Path) -> Callable[..., dict]:
    """Trains in this process, without Ray: run_here(recipe, out, ...) -> result. feed: wraps the stream of batches."""
    from lemur_ray.corpus.manifest import read_manifest
    from lemur_ray.plan.fetch import iterate
    from lemur_ray.plan.plan import plan_for
    from lemur_ray.train import loop
    from lemur_ray.train.run.folder import Run, prepare
    from lemur_ray.train.run.stage import staged

    def go(recipe: Recipe, out: Path, *, source: Path = corpus, init_from: str = "", lines: list | None = None,
           resume_from: str = "", keep: dict | None = None, feed: Callable = lambda batches: batches,
           **options: object) -> dict:  # fmt: skip
        run = Run(recipe, str(source), str(out), init_from)
        if resume_from:
            run = staged(run, resume_from, **(keep or {}))
        prepare(run)
        plan = plan_for(run.planned, read_manifest(source))

        def stream(start: int) -> Any:
            return feed(iterate(plan, source, start, rows_per_step=recipe.train.rows_per_step))

        sink = lines if lines is not None else []
        return loop.train(run, stream, loop.Worker(log=sink.append, **options))  # type: ignore[arg-type]

    return go


@pytest.fixture
def read_losses() -> Callable[[Path], dict[int, float]]:
    """Step -> loss of a run folder's metrics, every value as written; a step has one line."""

    def read(out: Path) -> dict[int, float]:
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert len({record["step"] for record in records}) == len(records), "a step has two lines"
        return {record["step"]: record["loss"] for record in records}

    return read


@pytest.fixture(autouse=True)
def _complains_about_itself(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves for the garbage collector is collected before the next one, under the test's own filters."""
    yield
    if request.node.get_closest_marker("filterwarnings"):
        gc.collect()


@pytest.fixture(autouse=True)
def _steps_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one recipe in this process share their compiled step: most of a small run's time is tracing."""
    from lemur_ray.train import loop, step

    def memoised(recipe: Recipe, mesh: Any, *, num_sources: int) -> Any:
        key = (recipe.model, recipe.optimizer, recipe.data, recipe.train, mesh, num_sources)
        if key not in _STEPS:
            _STEPS[key] = step.make_train_step(recipe, mesh, num_sources=num_sources)
        return _STEPS[key]

    monkeypatch.setattr(loop, "make_train_step", memoised)


_STEPS: dict[tuple[str, Any, int], Any] = {}
