"""The cache of compiled programs: where it lies, and an entry of it that is damaged."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.model.compile_cache import cache_folder

CACHED = """
import sys
from pathlib import Path
from typing import Any
import jax, jax.numpy as jnp
from lemur_ray.model.compile_cache import use_compile_cache
found = use_compile_cache(sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
print(float(jax.jit(lambda x: jnp.sin(x @ x).sum())(jnp.ones((64, 64)))), found)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", ["truncated", *(pytest.param(how, marks=pytest.mark.sweep) for how in ("noise", "empty"))]
)
def test_a_damaged_entry_of_the_compile_cache_is_compiled_anew(damage: str, tmp_path: Path) -> None:
    def start() -> str:
        done = subprocess.run(
            [sys.executable, "-c", CACHED, str(tmp_path)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    cold = start()
    assert "cold" in cold
    for entry in tmp_path.iterdir():
        data = entry.read_bytes()
        noise = np.random.default_rng(0).bytes(len(data))
        entry.write_bytes({"empty": b"", "truncated": data[: len(data) // 2], "noise": noise}[damage])
    again = start()
    assert again.split()[0] == cold.split()[0]


def test_the_compile_cache_lies_where_every_host_of_the_run_finds_it(
    lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    assert cache_folder("/runs/a", 1) == str(lemur_home / "cache" / "jax")
    assert cache_folder("/runs/a", 2) == "/runs/a/compile-cache"
    assert cache_folder("gs://bucket/a", 1) == "gs://bucket/a/compile-cache"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    assert cache_folder("gs://bucket/a", 1) == "/elsewhere"
