"""Writes the golden files: ``python -m tests.golden.make_golden [recipes evaluations ledger training help]``.

Golden files are made by the version before a move of modules, once, and prove that the version after it behaves the
same. They are never made again to get a test green: a difference is a fault of the move, or a change of behaviour that
belongs in CHANGELOG.md first, with only the file it concerns made again in the same commit.

Needs LEMUR_DATA. A stored ledger or run is what a user of that version has in a folder, so it is never made anew just
because the code that reads it has changed.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.metadata
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.golden import evaluations as e
from tests.golden import present as p
from tests.golden import training as t


def write(name: str, value: p.Json) -> None:
    """JSON with a line for every value two levels down: small, and a difference is still seen in a diff."""
    lines = []
    for key, item in sorted(value.items()):
        inner = item if isinstance(item, dict) else None
        entries = [f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted((inner or {}).items())]
        text = "{\n" + ",\n".join(entries) + "\n }" if entries else json.dumps(item, sort_keys=True)
        lines.append(f" {json.dumps(key)}: {text}")
    (p.GOLDEN / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{name}: {(p.GOLDEN / name).stat().st_size:,} bytes", flush=True)


def write_gz(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def make_recipes(home: Path) -> None:
    write("recipes.json", p.recipes())


def make_help(home: Path) -> None:
    with p.surroundings(home):
        write("help.json", {name: p.help_of(name) for name in p.JOBS})


def make_evaluations(home: Path) -> None:
    data = Path(os.environ["LEMUR_DATA"])
    write("evaluations.json", {name: e.planned(name, home, data) for name in e.EVALUATIONS})


def small_sample(home: Path) -> bytes:
    """The sample database of this machine with few enough packages and functions to be stored."""
    with p.surroundings(home):
        p.job("agent_eval", *e.LEDGERS["intercode-sql-expert"].split(), *e.ONE_BY_ONE.split())
    path = home / "intercode" / "sample.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("pragma secure_delete = on")
        database.execute("delete from packages where rowid % 6 > 0")
        database.execute("delete from dependencies where package not in (select name from packages)")
        database.execute("delete from modules where rowid % 8 > 0")
        database.execute("delete from functions where module not in (select name from modules) or rowid % 3 > 0")
        database.execute("update maintainers set name = 'maintainer ' || maintainer_id, email_domain = 'example.org'")
        database.execute("update packages set homepage = 'https://example.org/' || name where homepage is not null")
        database.commit()
        database.execute("vacuum")
    return path.read_bytes()


def make_ledger(home: Path) -> None:
    stored = p.GOLDEN / "ledger"
    if stored.exists():
        shutil.rmtree(stored)
    write_gz(stored / "sample.sqlite.gz", small_sample(home / "sample"))
    home = home / "played"
    headlines = {folder: e.play(folder, home)[0] for folder in e.LEDGERS}
    for folder in e.LEDGERS:
        for name in ("episodes.jsonl", "evaluations.json"):
            write_gz(stored / folder / f"{name}.gz", (home / "episodes" / folder / name).read_bytes())
    pages = {folder: e.pages_in(home / "episodes" / folder, home) for folder in e.LEDGERS}
    reports = {
        folder: e.without(home, json.loads((home / "episodes" / folder / "report.json").read_text()))
        for folder in e.LEDGERS
    }
    write("report.json", {"headlines": headlines, "pages": pages, "reports": reports, "all": e.report_of(home)})


def make_training(home: Path) -> None:
    manifest = t.build_corpus(home)
    table, about = t.build_talks(home)
    corpus, cut = home / "corpus", home / "runs" / "cut"
    whole = t.train(t.PRETRAIN, corpus, home / "runs" / "whole")
    started = t.train(t.PRETRAIN, corpus, cut, stop_after=t.STOP_AFTER)
    assert len(started) >= t.CHECKPOINT, started
    assert started == whole[: len(started)], "the run that was cut off is not the beginning of the other"
    t.keep_only(cut, ("recipe.json", "tokenizer.json", "metrics.jsonl", "checkpoints"))
    recipe = json.loads((cut / "recipe.json").read_text())
    (cut / "recipe.json").write_text(json.dumps({**recipe, "corpus_path": "corpus"}, indent=1))
    t.pack_into(p.GOLDEN / "training.tar.gz", home, ("texts", "corpus", f"instruct/{table.name}", "runs/cut"))
    tuned = t.train(t.TUNE, table, home / "runs" / "tuned", init_from=str(cut))
    write(
        "training.json",
        {
            "versions": {name: importlib.metadata.version(name) for name in ("jax", "optax", "tokenizers")},
            "recipe": recipe["hash"],
            "identity": recipe["identity"],
            "corpus": {"fingerprint": recipe["corpus"], "manifest": manifest, "files": t.digests(corpus)},
            "table": {"name": table.name, "manifest": about, "files": t.digests(table)},
            "pretrained": whole,
            "tuned": tuned,
        },
    )
    print(f"training.tar.gz: {(p.GOLDEN / 'training.tar.gz').stat().st_size:,} bytes", flush=True)


MAKERS = {
    "recipes": make_recipes,
    "help": make_help,
    "ledger": make_ledger,
    "evaluations": make_evaluations,  # after the ledger: it asks about the stored sample database
    "training": make_training,
}


def main() -> int:
    for name in sys.argv[1:] or MAKERS:
        with tempfile.TemporaryDirectory(prefix="golden-") as home:
            MAKERS[name](Path(home) / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
