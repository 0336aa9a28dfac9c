"""The walls of the house: which room may import which, and where Ray, jax and HTTP may stand."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT, files_imported, imports, imports_by_value, name, python_files

# A room is a folder or a lone file of the top, with what it may import besides itself and EVERYWHERE. A longer name is
# a room within a room whose own rule takes the place of the outer one's; rooms around it see into it.
EVERYWHERE = {"lemur_ray/config", "lemur_ray/host", "lemur_ray/storage"}
DECLARED = {"envs/outside_data", "envs/published_protocols"}
"""What the built-in benchmarks have in TOML files."""
ROOMS: dict[str, set[str]] = {
    **{room: set() for room in EVERYWHERE},
    "lemur_ray/weights/checkpoints": set(),
    "lemur_ray/recipes": set(),
    "lemur_ray/text": {"lemur_ray/agents"},
    "lemur_ray/corpus": {"lemur_ray/outside_data", "lemur_ray/text"},
    "lemur_ray/plan": {"lemur_ray/corpus", "lemur_ray/text"},
    "lemur_ray/instruct": {"lemur_ray/agents", "lemur_ray/corpus", "lemur_ray/outside_data", "lemur_ray/text"},
    "lemur_ray/model": set(),
    "lemur_ray/weights": {"lemur_ray/weights/checkpoints", "lemur_ray/model", "lemur_ray/recipes", "lemur_ray/text"},
    "lemur_ray/train": {
        "lemur_ray/weights/checkpoints", "lemur_ray/corpus", "lemur_ray/doctor", "lemur_ray/model", "lemur_ray/plan",
        "lemur_ray/recipes", "lemur_ray/text", "lemur_ray/weights",
    },
    "lemur_ray/train/pod": {"lemur_ray/model"},
    "lemur_ray/train/run": {
        "lemur_ray/weights/checkpoints", "lemur_ray/corpus", "lemur_ray/doctor", "lemur_ray/model", "lemur_ray/plan",
        "lemur_ray/recipes", "lemur_ray/text", "lemur_ray/train/evaluate", "lemur_ray/train/pod", "lemur_ray/weights",
    },
    "lemur_ray/train/aot": {"lemur_ray/model", "lemur_ray/recipes", "lemur_ray/train/pod", "lemur_ray/train/step"},
    "lemur_ray/serve": {
        "lemur_ray/agents", "lemur_ray/doctor", "lemur_ray/model", "lemur_ray/recipes", "lemur_ray/text",
        "lemur_ray/weights",
    },
    "lemur_ray/serve/engine": {"lemur_ray/serve/config"},
    "lemur_ray/serve/compute": {
        "lemur_ray/model", "lemur_ray/serve/config", "lemur_ray/serve/engine", "lemur_ray/weights",
    },
    "lemur_ray/serve/planning": {
        "lemur_ray/serve/compute", "lemur_ray/serve/config", "lemur_ray/train/aot", "lemur_ray/train/job_arguments",
        "lemur_ray/train/pod",
    },
    "lemur_ray/serve/http": {
        "lemur_ray/serve/config", "lemur_ray/serve/engine", "lemur_ray/serve/grammar_matching",
        "lemur_ray/serve/openai", "lemur_ray/serve/reply_types", "lemur_ray/serve/request_errors",
        "lemur_ray/serve/text_engine", "lemur_ray/text", "lemur_ray/weights",
    },
    "lemur_ray/serve/openai": {
        "lemur_ray/agents", "lemur_ray/serve/engine/sampling_options", "lemur_ray/serve/engine/token_logprobs",
        "lemur_ray/serve/reply_types",
        "lemur_ray/text/tool_results", "lemur_ray/text/tools_in_words",
    },
    "lemur_ray/agents": set(),
    "lemur_ray/benchmarks": {
        "lemur_ray/agents", "lemur_ray/doctor", "lemur_ray/outside_data", "lemur_ray/sandbox",
        "lemur_ray/text/tools_in_words",
    },
    "lemur_ray/outside_data": set(),
    "lemur_ray/sandbox": set(),
    "lemur_ray/sandbox/inside": set(),
    "lemur_ray/grading": {"lemur_ray/sandbox"},
    "lemur_ray/rollout": {
        "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/weights/checkpoints", "lemur_ray/sandbox",
        "lemur_ray/text/tools_in_words",
    },
    "lemur_ray/evaluation": {
        "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/cluster", "lemur_ray/instruct", "lemur_ray/report",
        "lemur_ray/rollout", "lemur_ray/serve/on_ray", "lemur_ray/serve/policy_model",
    },
    "lemur_ray/improve": {
        "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/cluster", "lemur_ray/corpus", "lemur_ray/instruct",
        "lemur_ray/model", "lemur_ray/recipes", "lemur_ray/report", "lemur_ray/rollout", "lemur_ray/serve",
        "lemur_ray/text", "lemur_ray/train", "lemur_ray/weights",
    },
    "lemur_ray/report": {
        "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/rollout", "lemur_ray/text/tools_in_words",
    },
    "lemur_ray/cluster": {"lemur_ray/doctor"},
    "lemur_ray/doctor": set(),
    "envs": {"lemur_ray/agents", "lemur_ray/grading", "lemur_ray/outside_data", "lemur_ray/sandbox"},
    "envs/published_protocols": {"lemur_ray/benchmarks"},
    "envs/alfworld": {*DECLARED, "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks"},
    "envs/foreign": {
        "envs/intercode/fenced_block", "envs/spaces", "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks",
        "lemur_ray/sandbox",
    },
    "envs/intercode": {
        *DECLARED, "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/doctor",
        "lemur_ray/grading", "lemur_ray/outside_data", "lemur_ray/sandbox",
    },
    "envs/mint": {
        *DECLARED, "envs/alfworld", "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/grading",
        "lemur_ray/sandbox",
    },
    "envs/language": {
        *DECLARED, "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/grading/written_answers",
        "lemur_ray/grading/written_letters", "lemur_ray/outside_data",
    },
    "envs/language/bfcl": {
        *DECLARED, "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/outside_data",
        "lemur_ray/sandbox/sandbox", "lemur_ray/text/tools_in_words",
    },
    "envs/language/tau_bench": {
        *DECLARED, "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks", "lemur_ray/outside_data",
        "lemur_ray/sandbox/sandbox", "lemur_ray/text/tools_in_words",
    },
    "envs/programs": {
        *DECLARED, "envs/intercode/sql", "envs/question/env", "envs/text_env", "lemur_ray/agents",
        "lemur_ray/benchmarks", "lemur_ray/grading", "lemur_ray/outside_data", "lemur_ray/sandbox",
    },
    "envs/question": {"envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks"},
    "envs/webarena": {
        *DECLARED, "envs/spaces", "envs/text_env", "lemur_ray/agents", "lemur_ray/benchmarks",
    },
    "jobs": {"lemur_ray", "envs"},
}  # fmt: skip

# Packages of others, and the only rooms (or files, without .py) that may import them.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "ray": (
        "lemur_ray/cluster/connection", "lemur_ray/cluster/ray_output", "lemur_ray/storage/bundles/on_ray",
        "lemur_ray/corpus/on_ray", "lemur_ray/doctor/hosts/survey", "lemur_ray/plan/feed", "lemur_ray/improve/on_ray",
        "lemur_ray/rollout/actors/task_lease_actor", "lemur_ray/rollout/actors/on_ray",
        "lemur_ray/rollout/endpoints/endpoint_gate", "lemur_ray/serve/on_ray", "lemur_ray/train/on_ray",
    ),
    **dict.fromkeys(
        ("jax", "jaxlib", "flax", "optax", "orbax", "chex", "torch", "transformers"),
        ("jobs", "lemur_ray/improve/learner",
         "lemur_ray/model", "lemur_ray/serve/compute", "lemur_ray/serve/on_ray", "lemur_ray/train",
         "lemur_ray/weights"),
    ),
    **dict.fromkeys(("fastapi", "starlette", "uvicorn"), ("lemur_ray/serve/http", "lemur_ray/serve/on_ray")),
    "pydantic": ("lemur_ray/serve/openai",),
    "prometheus_client": ("lemur_ray/serve/http",),
    "huggingface_hub": ("lemur_ray/outside_data/hub",),
    "aiohttp": ("lemur_ray/outside_data/web", "lemur_ray/storage/google_files", "lemur_ray/storage/amazon_files"),
    "playwright": ("envs/webarena/browser",),
    "llguidance": ("lemur_ray/serve/grammar_matching", "lemur_ray/serve/openai/structured_output"),
}  # fmt: skip
BY_VALUE = (
    "envs/language/bfcl/simulated_apis",
    "envs/language/tau_bench/domain",
    "envs/question/env",
    "lemur_ray/agents/baselines/function_policy",
    "lemur_ray/benchmarks/discovery",
    "lemur_ray/host/documentation",
    "lemur_ray/host/renamed_modules",
    "lemur_ray/recipes",
    "lemur_ray/sandbox/sandbox",
    "lemur_ray/sandbox/inside/payload",
)
"""Where a module is imported whose name is a value: registries, sandboxes, classes of an optional package."""
NOT_IN_SERVING = {
    "aiohttp", "http", "httpx", "openai", "requests", "socketserver", "tokenizers", "transformers", "urllib",
    "websockets",
}  # fmt: skip
"""Text and HTTP of any kind: nothing of it in what generates tokens."""
LIGHT = ("lemur_ray.config", "lemur_ray.agents.trajectory", "lemur_ray.report.pages.whole_page", "envs")
CODE = ("lemur_ray/", "envs/", "jobs/")


def module(path: Path) -> str:
    """The path of a file as rooms are named: without ``.py``, a package by its folder."""
    return name(path).removesuffix(".py").removesuffix("/__init__")


def inside(file: str, room: str) -> bool:
    return file == room or file.startswith(f"{room}/")


def room_of(file: str) -> str:
    rooms = [room for room in ROOMS if inside(file, room)]
    assert rooms, f"{file} stands in no room: add one to ROOMS here and to the architecture notes"
    return max(rooms, key=len)


def test_every_room_imports_only_what_its_rule_allows() -> None:
    wrong = []
    for path in python_files(*CODE):
        if (file := module(path)) in ("lemur_ray", "envs"):
            continue
        room = room_of(file)
        allowed = {room, *EVERYWHERE, *ROOMS[room]}
        for target in files_imported(path):
            if target != "lemur_ray" and not any(inside(target, other) for other in allowed):
                wrong.append(f"{name(path)} imports {target}, which {room} may not")
    assert not wrong, "\n".join(wrong)


def test_no_rule_names_a_room_that_is_not_there() -> None:
    there = {module(path) for path in python_files(*CODE)}
    named = {*ROOMS, *(room for rooms in (*ROOMS.values(), *ONLY_IN.values()) for room in rooms)}
    gone = sorted(room for room in named if not any(inside(file, room) for file in there))
    assert not gone, f"no file stands in {gone}"


def test_what_lies_in_one_folder_never_imports_in_a_circle() -> None:
    """At every level of the tree, with a folder as one thing: who looks into a room reads it from the bottom up."""
    arrows: dict[str, dict[str, dict[str, str]]] = {}
    for path in python_files(*CODE):
        file = module(path) + ("/" if path.name == "__init__.py" else "")
        for target in files_imported(path):
            a, b = file.split("/"), target.split("/")
            level = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
            if level is not None and path.name != "__init__.py":
                arrows.setdefault("/".join(a[:level]), {}).setdefault(a[level], {}).setdefault(
                    b[level], f"{name(path)} imports {target}"
                )
    circles = [circle for folder in sorted(arrows) for circle in circles_of(folder, arrows[folder])]
    assert not circles, "\n\n".join(circles)


def circles_of(folder: str, arrows: dict[str, dict[str, str]]) -> list[str]:
    """One line an arrow, for every circle that a walk over a folder's arrows meets."""
    done: set[str] = set()
    found: list[str] = []

    def walk(at: str, way: list[str]) -> None:
        if at in way:
            round_ = [*way[way.index(at) :], at]
            found.append(
                f"circle in {folder or 'the house'}:\n  "
                + "\n  ".join(arrows[a][b] for a, b in itertools.pairwise(round_))
            )
        elif at not in done:
            for to in arrows.get(at, {}):
                walk(to, [*way, at])
            done.add(at)

    for start in sorted(arrows):
        walk(start, [])
    return found


def test_packages_of_others_are_imported_only_in_their_rooms() -> None:
    wrong = [
        f"{name(path)} imports {package}"
        for path in python_files(*CODE)
        for package in {imported.split(".")[0] for imported in imports(path)} & set(ONLY_IN)
        if not any(inside(module(path), room) for room in ONLY_IN[package])
    ]
    assert not wrong, "\n".join(wrong)


def test_what_generates_tokens_knows_no_text_and_no_http() -> None:
    rooms = ("lemur_ray/serve/engine/", "lemur_ray/serve/compute/")
    wrong = [
        f"{name(path)} imports {found}"
        for path in python_files(*rooms)
        for found in {imported.split(".")[0] for imported in imports(path)} & NOT_IN_SERVING
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_stands_in_the_file_but_for_registries() -> None:
    wrong = [
        name(path)
        for path in python_files(*CODE)
        if imports_by_value(path) and not any(inside(module(path), room) for room in BY_VALUE)
    ]
    assert not wrong, wrong


def test_the_library_never_imports_environments_jobs_or_tests() -> None:
    wrong = [
        f"{name(path)} imports {imported}"
        for path in python_files("lemur_ray/", "envs/")
        for imported in imports(path)
        if imported.split(".")[0]
        in (("jobs", "tests") if name(path).startswith("envs/") else ("envs", "jobs", "tests"))
    ]
    assert not wrong, "\n".join(wrong)


def test_importing_the_library_is_quick_and_brings_neither_jax_nor_ray() -> None:
    code = (
        "import sys, time; before = time.process_time(); import lemur_ray; "
        "print(time.process_time() - before, *sorted({'jax', 'ray', 'flax', 'numpy'} & set(sys.modules)))"
    )
    runs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        seconds, *heavy = done.stdout.split()
        assert not heavy, f"import lemur_ray brings {heavy}"
        runs.append(float(seconds))
    assert min(runs) < 0.05, f"import lemur_ray takes {min(runs) * 1000:.0f} ms of CPU time, expected under 50"


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_bring_neither_jax_nor_ray(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'jax', 'ray'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), f"{module} brings {done.stdout}"
