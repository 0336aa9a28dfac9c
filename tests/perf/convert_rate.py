"""Memory and speed of importing and exporting weights against a plain copy: python tests/perf/convert_rate.py.

A random bfloat16 model of Llama-7B's layer shapes is written as safetensors and then, in turns, each in a process of
its own:

    copy      the files, read and written in pieces of 16 MiB, flushed to the disk at the end
    import    Hugging Face folder -> run folder (jobs/convert.py --to run)
    export    run folder -> Hugging Face folder, whose files are then compared with the originals, byte for byte
    load      Hugging Face folder -> float32 arrays on 8 devices, leaf by leaf, each dropped when it lies there

Memory is the highest anonymous resident memory (RssAnon, sampled every 5 ms) above what it was just before the work,
with everything imported; for ``load`` the arrays of the leaf in flight are what is being made and are subtracted, so
that what remains is what the import needs on top. Nothing is mapped: RssFile is printed too. Pages of the page cache,
which the kernel drops when it likes, count for nobody. ``--cold`` drops the cache of what is read before every turn.
Speed counts the bytes of the safetensors; CPU time is printed beside, because wall time means little on a machine
that others use too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
PIECE = 2**24
KINDS = ("copy", "import", "export", "load")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=3.0, help="size of the model, in 10^9 bytes of bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--folder", default=None, help="where to work; by default a temporary folder")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker[0], Path(options.worker[1]), options.gb)))
        return 0
    base = Path(tempfile.mkdtemp(prefix="lemur-convert-rate-", dir=options.folder))
    try:
        return measure(base, options)
    finally:
        shutil.rmtree(base)


def measure(base: Path, options: argparse.Namespace) -> int:
    made = run("make", base, options)
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in options.kinds}
    sources = {"export": "run"}
    if "import" not in options.kinds and "export" in options.kinds:
        run("import", base, options)
    for turn in range(options.rounds + 1):
        for kind in options.kinds:
            if options.cold:
                os.sync()
                for path in (base / sources.get(kind, "hf")).rglob("*"):
                    if path.is_file():
                        drop(path)
            result = run(kind, base, options)
            print(f"{kind:7s}", " ".join(f"{key} {value}" for key, value in result.items()), flush=True)
            if turn:  # the first turn warms
                found[kind].append(result)
    slice_mb = made["largest_slice_mb"]
    summary: dict[str, Any] = {"gb": made["gb"], "largest_slice_mb": slice_mb, "cold": options.cold}
    copy = statistics.median(result["gb_per_s"] for result in found["copy"])
    good = True
    for kind, results in found.items():
        speed = statistics.median(result["gb_per_s"] for result in results)
        ratios = [r["gb_per_s"] / c["gb_per_s"] for r, c in zip(results, found["copy"], strict=True)]
        peak = max(result["above_baseline_mb"] for result in results)
        summary[kind] = {
            "gb_per_s": round(speed, 3), "of_copy": round(statistics.median(ratios), 2),
            "of_copy_range": [round(min(ratios), 2), round(max(ratios), 2)],
            "peak_mb": round(peak), "of_slice": round(peak / slice_mb, 2),
            "cpu_s": round(statistics.median(result["cpu_s"] for result in results), 2),
        }  # fmt: skip
        good &= peak <= 1.3 * slice_mb and speed >= 0.8 * copy
    print(json.dumps(summary))
    return 0 if good else 1


def run(kind: str, base: Path, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", kind, str(base), "--gb", str(options.gb)]
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def work(kind: str, base: Path, gb: float) -> dict[str, Any]:
    """One turn in this process."""
    from lemur_ray.config import ModelConfig

    layers = max(1, round((gb * 1e9 / 2 - 2 * 32000 * 4096) / 202_383_360))
    config = ModelConfig(
        vocab_size=32000, num_layers=layers, dim=4096, ffn_dim=11008, num_heads=32, num_kv_heads=32, head_dim=128,
        max_seq_len=4096,
    )  # fmt: skip
    hf, run_folder, out = base / "hf", base / "run", base / "out"
    if kind == "make":
        return make(hf, config)
    size = sum(path.stat().st_size for path in hf.glob("*.safetensors"))
    act = {"copy": copy, "import": convert_in, "export": convert_out, "load": load}[kind]
    watch = Watch()
    wall_s, cpu_s = act(hf, run_folder, out, config, watch)
    above = watch.stop()
    if kind == "export":
        for path in hf.glob("*.safetensors"):
            same = subprocess.run(["cmp", str(path), str(out / path.name)]).returncode == 0
            assert same, f"{path.name} did not come back bit for bit"
    shutil.rmtree(out, ignore_errors=True)
    return {
        "gb_per_s": round(size / 1e9 / wall_s, 3), "wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2),
        "above_baseline_mb": round(above["RssAnon"], 1), "mapped_files_mb": round(above["RssFile"], 1),
    }  # fmt: skip


class Watch:
    """The highest memory of this process by kind, in MB above that at ``start``."""

    def __init__(self) -> None:
        self._stop, self._expected_mb = threading.Event(), 0.0
        self._base: dict[str, float] = {}
        self._top = {"RssAnon": 0.0, "RssFile": 0.0}
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> tuple[float, float]:
        self._base = memory_mb()
        self._thread.start()
        return time.monotonic(), time.process_time()

    def expect(self, mb: float) -> None:
        """From now on so much is what is being made."""
        self._expected_mb = mb

    def stop(self) -> dict[str, float]:
        self._stop.set()
        self._thread.join()
        return self._top

    def _sample(self) -> None:
        while not self._stop.wait(0.005):
            expected, now = self._expected_mb, memory_mb()
            self._top["RssAnon"] = max(self._top["RssAnon"], now["RssAnon"] - self._base["RssAnon"] - expected)
            self._top["RssFile"] = max(self._top["RssFile"], now["RssFile"] - self._base["RssFile"])


def memory_mb() -> dict[str, float]:
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {line[0][:-1]: int(line[1]) * 1024 / 1e6 for line in lines if line and line[0] in ("RssAnon:", "RssFile:")}


def drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def make(hf: Path, config: Any) -> dict[str, Any]:
    """Random weights as finite bfloat16, block by block; files of 1 GB."""
    import ml_dtypes
    import numpy as np

    from lemur_ray.weights.convert import write_small_files
    from lemur_ray.weights.hf_tensors import DTYPES, HuggingFaceSink
    from lemur_ray.weights.param_slices import leaves

    sink = HuggingFaceSink(hf, config, dict.fromkeys(leaves(config), DTYPES["bfloat16"]), 10**9)
    rng, sizes = np.random.default_rng(0), []
    for name, layer in sink.order:
        shape = leaves(config)[name]
        parts = tuple(range(size) for size in shape)
        if name.startswith("layers."):
            parts = (range(layer, layer + 1), *parts[1:])
        bits = rng.integers(0, 0x4000, [len(part) for part in parts], np.uint16)
        sizes.append(bits.nbytes)
        sink.write(name, parts, bits.view(ml_dtypes.bfloat16))
    sink.close()
    write_small_files(str(hf), config, None, "bfloat16")
    return {"gb": round(sum(sizes) / 1e9, 3), "largest_slice_mb": max(sizes) / 1e6}


def copy(hf: Path, _run: Path, out: Path, _config: Any, watch: Watch) -> tuple[float, float]:
    out.mkdir()
    began, cpu = watch.start()
    for path in sorted(hf.glob("*.safetensors")):
        with path.open("rb", buffering=0) as source, (out / path.name).open("wb", buffering=0) as target:
            piece = bytearray(PIECE)
            while count := source.readinto(piece):
                target.write(memoryview(piece)[:count])
            os.fsync(target.fileno())
    return time.monotonic() - began, time.process_time() - cpu


def convert_in(hf: Path, run_folder: Path, _out: Path, _config: Any, watch: Watch) -> tuple[float, float]:
    import jax

    from lemur_ray.weights.convert import Convert, convert

    jax.devices()
    shutil.rmtree(run_folder, ignore_errors=True)
    began, cpu = watch.start()
    convert(Convert(str(hf), str(run_folder), "run"), str(run_folder))
    return time.monotonic() - began, time.process_time() - cpu


def convert_out(_hf: Path, run_folder: Path, out: Path, _config: Any, watch: Watch) -> tuple[float, float]:
    import jax

    from lemur_ray.weights.convert import Convert, convert

    jax.devices()
    began, cpu = watch.start()
    convert(Convert(str(run_folder), str(out), "hf", max_file_gb=1.0), str(out))
    return time.monotonic() - began, time.process_time() - cpu


def load(hf: Path, _run: Path, _out: Path, config: Any, watch: Watch) -> tuple[float, float]:
    """Every leaf onto a mesh of 8 devices of this host."""
    import jax
    import numpy as np

    from lemur_ray.config import MeshConfig
    from lemur_ray.model.sharding import make_mesh, param_shardings
    from lemur_ray.weights.hf_tensors import HuggingFaceWeights
    from lemur_ray.weights.mesh_loading import place_leaf
    from lemur_ray.weights.param_slices import leaves

    shardings = {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(param_shardings(config, make_mesh(MeshConfig(tp=2))))
    }
    began, cpu = watch.start()
    source = HuggingFaceWeights(hf, config)
    for name, shape in leaves(config).items():
        watch.expect(int(np.prod(shape)) * 4 / 1e6)
        array = place_leaf(source, name, shape, shardings[name])
        del array
    return time.monotonic() - began, time.process_time() - cpu


if __name__ == "__main__":
    raise SystemExit(main())
