"""Rates of cleaning with MinHash and of tokenising with 32,000 merges against the ways before, in one interleaved run.

CPU and wall seconds of one core; exit code 1 below a target or if results differ. The documents are the Python library
and other software of this machine; 32,000 merges in the form of Llama's tokenizer are trained on them.

python tests/perf/corpus/corpus_rate.py [MEGABYTES] [clean|tokens]
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import row_at_a_time  # noqa: E402
from tokenizers import Tokenizer as Backend  # noqa: E402
from tokenizers import models, normalizers, pre_tokenizers, trainers  # noqa: E402

from lemur_ray.corpus.cleaning.minhash import minhash_name  # noqa: E402
from lemur_ray.corpus.comparison.scan_steps import band_part  # noqa: E402
from lemur_ray.corpus.documents import Kind  # noqa: E402
from lemur_ray.corpus.sources.embedded import embedded_sources  # noqa: E402
from lemur_ray.corpus.sources.texts import FileRef, read_texts  # noqa: E402
from lemur_ray.corpus.steps import stages  # noqa: E402
from lemur_ray.corpus.steps.document_encoder import document_encoder  # noqa: E402
from lemur_ray.corpus.steps.tokenise import tokenise  # noqa: E402
from lemur_ray.text.tokenizer import Tokenizer  # noqa: E402

CLEAN_MB_S, CLEAN_RATIO, TOKENS_MB_S, TOKENS_RATIO = 15.0, 2.5, 12.0, 6.0
COMPARED = 10_000
"""Documents whose ids are compared."""
ROUNDS = 3


class Times:
    """CPU and wall seconds of the best of some rounds, by name."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    def run(self, name: str, call: Callable[[], Any]) -> Any:
        cpu, wall = _cpu_s(), time.perf_counter()
        out = call()
        cpu, wall = _cpu_s() - cpu, time.perf_counter() - wall
        if cpu < self.cpu.get(name, float("inf")):
            self.cpu[name], self.wall[name] = cpu, wall
        return out

    def line(self, name: str, megabytes: float) -> str:
        return f"{name} {megabytes / self.cpu[name]:.1f} MB/s of CPU ({megabytes / self.wall[name]:.1f} of wall)"


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def documents(megabytes: float) -> dict[Kind, list[str]]:
    """Texts of this machine's software by kind, three bytes of code for one of text."""
    out: dict[Kind, list[str]] = {"code": [], "text": []}
    for source in embedded_sources(int(megabytes * 1e6), 3.0, 0):
        out[source.kind] += [item.text for ref in source.files for item in read_texts(ref) if item.rule is None]
    return out


def size_of(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def clean_rates(folder: Path, texts: dict[Kind, list[str]], times: Times) -> bool:
    """Clean the documents of both kinds by both ways in turn; whether results are equal and targets are met."""
    for name in stages.FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    equal = True
    for turn in range(ROUNDS):
        for kind, of_kind in texts.items():
            path = folder / f"{kind}.parquet"
            pq.write_table(pa.table({"text": of_kind}), path, row_group_size=1000)
            ref, part = FileRef(str(path), path.stat().st_size, "parquet", path.name), f"{kind}{turn}"
            value = {"kind": kind, "filters": "", "files": [ref.to_json()]}
            (folder / "parts" / f"{part}.json").write_text(json.dumps(value))
            before = partial(row_at_a_time.clean_into, folder / "old", [ref], kind)
            old = times.run(f"row at a time {kind}", before)
            new = times.run(f"clean {kind}", partial(stages.clean_part, folder, part))
            times.run(f"MinHash {kind}", partial(band_part, folder, part, part))
            ids = (folder / "clean" / f"{part}.ids").read_bytes()
            equal &= (ids, dict(old[1]), dict(old[2])) == (old[0], new["dropped"], new["masked"])
    size = sum(map(size_of, texts.values()))
    for kind, of_kind in texts.items():
        print("; ".join(times.line(f"{way} {kind}", size_of(of_kind)) for way in ("row at a time", "clean", "MinHash")))
    for way in ("cpu", "wall"):
        seconds = getattr(times, way)
        old_s = sum(seconds[f"row at a time {kind}"] for kind in texts)
        clean_s = sum(seconds[f"clean {kind}"] for kind in texts)
        all_s = clean_s + sum(seconds[f"MinHash {kind}"] for kind in texts)
        print(
            f"{way}: {size:.0f} MB, row at a time without MinHash {size / old_s:.1f} MB/s; clean {size / clean_s:.1f},"
            f" with MinHash ({minhash_name()}) {size / all_s:.1f} (at least {CLEAN_MB_S}): {old_s / all_s:.2f} times"
            f" (at least {CLEAN_RATIO}); equal: {equal}"
        )
        if way == "cpu":
            met = size / all_s >= CLEAN_MB_S and old_s / all_s >= CLEAN_RATIO
    return equal and met


def llama_form(texts: list[str], vocab_size: int = 32_000) -> Tokenizer:
    """A tokenizer in the form of Llama's: blanks as U+2581, bytes as fallback, merges over the whole text."""
    backend = Backend(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    backend.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, show_progress=False, max_token_length=16
    )
    backend.train_from_iterator(texts, trainer)
    raw = json.loads(backend.to_str())
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    raw["pre_tokenizer"] = None
    raw["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]}
    raw["decoder"] = {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_json(json.dumps(raw, ensure_ascii=False))


def token_rates(texts: list[str]) -> bool:
    """Tokenise batches of documents by both ways in turn; whether ids are equal and targets are met.

    Documents are timed whole, as a build encodes them. Further ones, cut from the same texts, are compared only.
    """
    tokenizer, encoded = llama_form(texts), np.dtype("<u2")
    compared, equal, sizes = 0, True, 0.0
    old_s, new_s, wall_s = 0.0, 0.0, [0.0, 0.0]
    encoder = document_encoder(tokenizer)
    for begin in range(0, len(texts), 512):
        batch = texts[begin : begin + 512]
        one = Times()
        new = one.run("new", partial(tokenise, batch, tokenizer, encoded, encoder))
        old = one.run("old", partial(tokenise, batch, tokenizer, encoded))
        equal &= all(map(np.array_equal, old, new))
        compared, sizes = compared + len(batch), sizes + size_of(batch)
        old_s, new_s = old_s + one.cpu["old"], new_s + one.cpu["new"]
        wall_s = [wall_s[0] + one.wall["old"], wall_s[1] + one.wall["new"]]
    cut = [text[begin : begin + 500] for text in texts for begin in range(1, len(text), 5000)]
    for begin in range(0, max(0, COMPARED - compared), 512):
        batch = cut[begin : begin + 512]
        pair = tokenise(batch, tokenizer, encoded, encoder), tokenise(batch, tokenizer, encoded)
        equal, compared = equal and all(map(np.array_equal, *pair)), compared + len(batch)
    for way, old_seconds, new_seconds in (("cpu", old_s, new_s), ("wall", *wall_s)):
        print(
            f"{way}: {sizes:.0f} MB, tokenizers {sizes / old_seconds:.1f} MB/s, {encoder.library}"
            f" {sizes / new_seconds:.1f} (at least {TOKENS_MB_S}): {old_seconds / new_seconds:.1f} times (at least"
            f" {TOKENS_RATIO}); ids of {compared:,} documents equal: {equal}"
        )
    met = sizes / new_s >= TOKENS_MB_S and old_s / new_s >= TOKENS_RATIO
    return equal and met and compared >= COMPARED


def main() -> int:
    megabytes, *only = [*sys.argv[1:], "40"][: max(1, len(sys.argv) - 1)]
    texts, met = documents(float(megabytes)), True
    with tempfile.TemporaryDirectory() as folder:
        if only != ["tokens"]:
            met &= clean_rates(Path(folder), texts, Times())
    if only != ["clean"]:
        met &= token_rates([*texts["code"], *texts["text"]])
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
