"""Made-up episodes, runs and corpora for the tests of the report; all from a seed, all in the real formats."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory

KINDS = ("clean", "cool", "examine", "heat", "put", "puttwo")


def episode(
    task: str,
    outcome: Outcome,
    *,
    score: float | None = None,
    category: str = "put",
    benchmark: str = "alfworld/text",
    policy: str = "nano-chat",
    recipe: str = "0123456789abcdef",
    turns: int = 3,
    valid: bool = True,
    attempts: int = 1,
    epoch: int = 0,
    reply: str = "go to drawer 1",
    observation: str = "You arrive at drawer 1. The drawer 1 is closed.",
) -> Episode:
    """One episode; the score follows from the outcome unless it is given."""
    if score is None and outcome.scored:
        score = 1.0 if outcome is Outcome.SOLVED else 0.0
    step = Step(reply, reply if valid else None, observation, 0.0, valid, 0.01, 0.001, 120, 7)
    opening = (Message("user", "You are in the middle of a room. Your task is to: put a mug in a drawer."),)
    return Episode(
        EpisodeKey(benchmark, task, policy, recipe, epoch),
        category,
        outcome,
        score,
        attempts,
        Trajectory(opening, (step,) * turns),
        wall_s=turns * 0.1,
        detail="" if outcome.scored else "the actor died",
        retried=tuple(f"attempt {i + 1}: infra_lost: the actor died" for i in range(attempts - 1)),
    )


def alfworld(policy: str, rate: float, seed: int, per_kind: int = 20, invalid: float = 0.1) -> list[Episode]:
    """Episodes of all six task types of which about ``rate`` are solved; a few have no score."""
    rng = random.Random(seed)
    out = []
    for kind in KINDS:
        for i in range(per_kind):
            won = rng.random() < rate
            lost = rng.random() < 0.02 and policy == "nano-chat"
            outcome = Outcome.INFRA_LOST if lost else Outcome.SOLVED if won else Outcome.TURN_LIMIT
            turns = rng.randrange(6, 24) if won else 50
            one = episode(f"{kind}-{i}", outcome, category=kind, policy=policy, turns=turns, attempts=4 if lost else 1)
            steps = []
            for _ in range(turns):
                place = rng.choice(("drawer 1", "fridge 1", "countertop 2", "cabinet 3"))
                bad = rng.random() < invalid
                said = f"take mug 1 from {place}" if bad else f"go to {place}"
                seen = "Nothing happens." if bad else f"You arrive at {place}. On it, you see a mug 1, a plate 2."
                steps.append(Step(said, said, seen, 0.0, not bad, 0.02, 0.0, 300, 6))
            out.append(
                Episode(
                    one.key,
                    kind,
                    outcome,
                    one.score,
                    one.attempts,
                    Trajectory(one.trajectory.opening, tuple(steps)),
                    wall_s=turns * 0.12,
                    detail=one.detail,
                    retried=one.retried,
                )
            )
    return out


def write_ledger(folder: Path, episodes: list[Episode]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(e.to_json()) + "\n" for e in episodes)
    (folder / "episodes.jsonl").write_text(lines, encoding="utf-8")
    return folder


SOURCES = {
    "python": ("code", 0.52), "c-headers": ("code", 0.21), "javascript": ("code", 0.09), "shell": ("code", 0.06),
    "sql": ("code", 0.029), "docstrings": ("text", 0.05), "packages": ("text", 0.041),
}  # fmt: skip


def write_run(folder: Path, *, steps: int = 1200, chat: bool = False, finished: bool = True) -> Path:
    """A run folder as training writes it: recipe.json, metrics.jsonl, result.json."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {"chat": ("chat", 1.0)} if chat else SOURCES
    rng = random.Random(len(folder.name))
    lines, last = [], {}
    for step in range(10, steps + 1, 10):
        by_source = {
            f"loss/{name}": 2.2 + 0.25 * i + 5 * math.exp(-step / 150) + rng.gauss(0, 0.12)
            for i, name in enumerate(sources)
        }
        last = {
            "step": step, "rows": step * 4, "tokens": step * 4096,
            "loss": sum(by_source.values()) / len(by_source), **by_source, "lr": 3e-3, "grad_norm": 0.8,
            "skipped_steps": 0, "tokens_per_s": 8100.0, "flops_per_s_6n": 8.1e10, "flops_per_s_6n_causal": 9.4e10,
            "time_s": step * 4096 / 8100, "eta_s": 0.0,
        }  # fmt: skip
        if step % 300 == 0 and not chat:
            last |= {f"heldout/{k}/loss": 2.5 - step / 4000 for k in ("code", "text")}
            last |= {f"heldout/{k}/bits_per_byte": 1.9 - step / 4000 + 0.2 * (k == "text") for k in ("code", "text")}
        lines.append(json.dumps(last) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    recipe = {"name": "nano", "train": {"steps": steps}, "data": {"code_to_text": 10.0}}
    init = "" if not chat else str(folder.parent / "nano")
    written = {"recipe": recipe, "hash": "a3f0" * 4, "init_from": init, "init_from_path": init}
    (folder / "recipe.json").write_text(json.dumps(written))
    if finished:
        mixture = [
            {"name": name, "kind": kind, "rows": 3000, "asked_share": share, "asked_epochs": None,
             "built_rows": round(share * steps * 4), "built_share": share * 1.0003, "used_rows": 3000,
             "built_epochs": share * steps * 4 / 3000}
            for name, (kind, share) in sources.items()
        ]  # fmt: skip
        kept: dict[str, Any] = {k: v for k, v in last.items() if k.startswith(("loss", "heldout/"))}
        result = {"name": "nano", "hash": "a3f0" * 4, "steps": steps, "tokens": steps * 4096, "parameters": 1_443_072,
                  **kept, "skipped_steps": 0, "tokens_per_s": 8100.0, "train_s": last["time_s"], "mixture": mixture,
                  "replays_that_differ": []}  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def write_corpus(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    sources = [
        {
            "name": name,
            "kind": kind,
            "rows": int(9e3 * share),
            "tokens": int(9.2e6 * share),
            "documents": int(8e3 * share),
        }
        for name, (kind, share) in SOURCES.items()
    ]
    counts = {
        name: {"files": 950, "read": 900, "kept": 800, "dropped": {"long_line": 40, "duplicate": 60}, "masked": {}}
        for name in SOURCES
    }
    manifest = {"version": 1, "tokenizer": "tokenizer.json", "vocab_size": 2048, "seq_len": 1024, "sources": sources,
                "fill": 0.99871, "counts": counts}  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
