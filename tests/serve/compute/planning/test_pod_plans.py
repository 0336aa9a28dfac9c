"""Plans of ``jobs/plan_serving.py`` for a slice and for GPUs that are not there: compiled programs and exit codes."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
COMPILER = ROOT / ".venv-gpu-compiler" / "bin" / "python"


def plan(
    *arguments: str, code: int = 0, python: str = sys.executable, recipe: str = "lemur-70b-chat"
) -> tuple[dict[str, Any], str]:
    """The JSON object and the whole output of a plan, in a process of its own."""
    command = [python, str(ROOT / "jobs" / "plan_serving.py"), recipe, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


@pytest.fixture
def libtpu() -> None:
    if importlib.util.find_spec("libtpu") is None:
        if os.environ.get("CI"):
            pytest.fail("libtpu is not installed: in CI it must be (requirements-dev.lock)")
        pytest.skip("libtpu is not installed: pip install 'lemur-ray[tpu]'")


@pytest.mark.usefixtures("libtpu")
def test_a_slice_of_16_chips_holds_8_kv_heads_and_adds_twice_a_layer() -> None:
    found, text = plan("--slice", "v4:2x2x4", "--engine.batch-invariant", "False", "--check")
    assert (found["devices"], found["layers"], found["compiled_layers"], found["broken"]) == (16, 80, 80, [])
    assert found["fits"] is True
    decode, mixed = found["steps"]
    assert (mixed["singles"], mixed["rows"], mixed["length"]) == (64, 4, 32)
    for step, tokens in ((decode, 64), (mixed, 64 + 128)):
        assert step["kernel"] is True
        assert 0.97 < step["traffic_ratio"] < 1.02, "every weight is read once"
        (added,) = (c for c in step["collectives"] if c["kind"] == "all-reduce")
        assert (added["count"], added["dtype"], added["shape"], added["group"]) == (160, "bf16", [tokens, 8192], 16)
        assert "serve/compute/forward.py" in added["origin"]
        others = [c for c in step["collectives"] if c is not added]
        assert {c["kind"] for c in others} == {"all-gather"}
        (embedding,) = (c for c in others if "cut_logits.py" not in c["origin"])
        assert (embedding["count"], embedding["shape"]) == (1, [tokens, 8192])
        drawing = [c for c in others if c is not embedding]
        drawn = step["singles"] + step["rows"]
        assert sum(c["sent_bytes"] for c in drawing) < drawn * 32_000 * 4 / 4, "logits travel"
    assert decode["host_bytes"] == 64 * (4 + 8 + 5 + 1 + 32) * 4, "place, settings, edits, token and table of each row"
    assert f"1 array of {decode['host_bytes'] / 1e3:.1f} kB" in text
    assert "an estimate, nothing was measured" in text


@pytest.mark.sweep
@pytest.mark.usefixtures("libtpu")
def test_ordered_sums_exchange_and_gather_twice_a_layer() -> None:
    found, _ = plan("--slice", "v4:2x2x2", "--check")
    assert found["sums"] == "ordered"
    counts: dict[str, int] = {}
    for c in found["steps"][0]["collectives"]:
        if "cut_logits.py" not in c["origin"]:
            counts[c["kind"]] = counts.get(c["kind"], 0) + c["count"]
    assert counts == {"all-to-all": 160, "all-gather": 160 + 1}


@pytest.mark.sweep
@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize(
    ("where", "quantization", "tokens"),
    [("v4:2x2x2", "none", 320_000), ("v4:2x2x4", "none", 500_000), ("v6e:2x4", "none", 320_000),
     ("v5p:2x2x2", "none", 500_000), ("v5e:4x4", "none", 150_000), ("v5e:2x4", "int8", 150_000)],
)  # fmt: skip
def test_80_layers_fit_every_slice_that_the_table_names(where: str, quantization: str, tokens: int) -> None:
    found, _ = plan("--slice", where, "--quantization", quantization, "--check")
    assert (found["fits"], found["broken"]) == (True, [])
    assert found["cache_tokens"] >= tokens


@pytest.mark.usefixtures("libtpu")
def test_layers_that_are_scanned_are_not_to_be_chosen() -> None:
    command = [sys.executable, str(ROOT / "jobs" / "plan_serving.py"), "--slice", "v5e:2x4", "--layers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, "--layers: layers of a slice are scanned" in done.stderr) == (1, True), done.stderr


def test_eight_gpus_hold_it_and_add_twice_a_layer() -> None:
    if not COMPILER.exists():
        pytest.skip("the compiler for GPUs is not installed: make gpu-compiler")
    flags = ("--gpu", "h200x8", "--model.num-layers", "2", "--engine.batch-invariant", "False", "--check", "--json")
    found, text = plan(*flags, python=str(COMPILER))
    assert len(text.splitlines()) == 1
    assert (found["fits"], found["broken"]) == (True, [])
    added = [c["count"] for c in found["steps"][0]["collectives"] if c["kind"] == "all-reduce"]
    assert sum(added) == 4


GEMMA = (
    *("--model.activation", "gelu_tanh", "--model.norm-offset", "True", "--model.post-norms", "True"),
    *("--model.embed-scale", "True", "--model.tie-embeddings", "True", "--model.query-scalar", "256"),
    *("--model.head-dim", "256", "--model.global-every", "2", "--model.vocab-size", "256000"),
)
GEMMA_2 = (
    "--model.family",
    "gemma2",
    "--model.window",
    "4096",
    "--model.attention-cap",
    "50",
    "--model.logit-cap",
    "30",
)
GEMMA_3 = (
    *("--model.family", "gemma3_text", "--model.window", "1024", "--model.qk-norm", "True"),
    *("--model.local-rope-theta", "10000"),
)


def shape(dim: int, ffn_dim: int, heads: int, kv_heads: int) -> tuple[str, ...]:
    sizes = {"dim": dim, "ffn-dim": ffn_dim, "num-heads": heads, "num-kv-heads": kv_heads}
    return tuple(word for name, size in sizes.items() for word in (f"--model.{name}", str(size)))


@pytest.mark.sweep  # a minute each
@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize(
    ("flags", "kernel"),
    [
        pytest.param(("--model.family", "qwen3", "--model.qk-norm", "True"), True, id="Qwen3 8B"),
        pytest.param(("--model.family", "qwen2", "--model.qkv-bias", "True"), True, id="Qwen2"),
        pytest.param(("--model.family", "mistral", "--model.window", "4096"), True, id="Mistral with a window"),
        pytest.param((*GEMMA, *GEMMA_3, *shape(1152, 6912, 4, 1)), True, id="Gemma 3 1B"),
        pytest.param((*GEMMA, *GEMMA_3, *shape(2560, 10240, 8, 4)), False, id="Gemma 3 4B"),
        pytest.param((*GEMMA, *GEMMA_2, *shape(3584, 14336, 16, 8)), False, id="Gemma 2 9B"),
        pytest.param(("--model.head-dim", "64", *shape(2048, 8192, 32, 8)), False, id="heads of 64"),
    ],
)
def test_two_layers_of_every_family_compile_with_the_kernel_that_takes_them(
    flags: tuple[str, ...], kernel: bool
) -> None:
    planned, _ = plan(
        "--chip", "v5e", "--engine.context", "8192", "--model.num-layers", "2", *flags, recipe="llama3-8b"
    )
    assert planned["fits"] is True
    assert [step["kernel"] for step in planned["steps"]] == [kernel, kernel]
    assert max(step["temporaries"] for step in planned["steps"]) < 0.7e9, "some copies of 64 rows of logits in float32"
