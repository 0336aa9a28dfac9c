"""The walls of the house: who may import whom, where Ray and jax may stand, what no file may hold."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What each package of lemur_ray may import from lemur_ray; itself, config, home and json_files always.
MAY_IMPORT = {
    "config": set(),
    "home": set(),
    "json_files": set(),
    "checkpoints": set(),
    "doctor": set(),
    "demo": {"ports"},
    "export": {"agents", "instruct", "rollout"},
    "ports": set(),
    "text": {"agents"},
    "agents": set(),
    "sandbox": set(),
    "grading": {"sandbox"},
    "rollout": {"agents", "sandbox", "checkpoints"},
    "report": {"agents", "rollout"},
    "corpus": {"text"},
    "plan": {"corpus", "text"},
    "instruct": {"agents", "text", "corpus"},
    "model": set(),
    "weights": {"model", "text", "recipes", "checkpoints"},
    "train": {"checkpoints", "model", "weights", "plan", "corpus", "text", "recipes"},
    "serve": {"model", "weights", "text", "agents", "ports"},
    "recipes": set(),
    "benchmarks": {"agents", "grading", "sandbox"},
    "datasets": set(),
}
ENVS_MAY_IMPORT = {"config", "home", "json_files", "agents", "grading", "sandbox"}
WITHOUT_JAX = ("lemur_ray/agents", "lemur_ray/sandbox", "lemur_ray/grading", "lemur_ray/rollout", "envs")
WITH_RAY = {
    "lemur_ray/corpus/build.py",
    "lemur_ray/instruct/workers.py",
    "lemur_ray/plan/feed.py",
    "lemur_ray/train/pod/trainer.py",
    "lemur_ray/train/pod/trials.py",
    "lemur_ray/serve/on_ray/deployments.py",
    "lemur_ray/serve/on_ray/vllm_deployment.py",
    "lemur_ray/serve/on_ray/host_group.py",
    "lemur_ray/serve/on_ray/handle.py",  # environment actors that ask by handle never load jax
    "lemur_ray/rollout/pool.py",
}
LIGHT = ("lemur_ray.config", "lemur_ray.agents.trajectory", "lemur_ray.report.pages.whole_page", "envs")
BUILT_ON_JAX = {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}
FOREIGN = ("sh", "py", "yaml", "yml", "toml", "lock", "md", "txt", "cfg", "json")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file git tracks; where there is no git, every file that is not plainly a by-product."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
        return tuple(ROOT / name for name in names if (ROOT / name).is_file())
    hidden = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    return tuple(p for p in ROOT.rglob("*") if p.is_file() and not hidden & set(p.relative_to(ROOT).parts))


def python_files(*folders: str) -> list[Path]:
    return [p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).as_posix().startswith(folders)]


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute dotted names that a file imports, wherever in the file; imports for type checkers alone count too."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the whole name"
            module = node.module or ""
            found += [f"{module}.{alias.name}" for alias in node.names]
    return tuple(found)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def top(module: str) -> str:
    return module.split(".")[0]


def test_every_package_imports_only_what_lies_below_it() -> None:
    wrong = []
    for path in python_files("lemur_ray/"):
        parts = path.relative_to(ROOT / "lemur_ray").parts
        own = parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in MAY_IMPORT, f"lemur_ray/{own} has no rule: add it to MAY_IMPORT and to the architecture notes"
        allowed = MAY_IMPORT[own] | {own, "config", "home", "json_files"}
        for module in imports(path):
            if top(module) == "lemur_ray" and module.count(".") and module.split(".")[1] not in allowed:
                wrong.append(f"{name(path)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_the_library_never_imports_environments_jobs_or_tests() -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in python_files("lemur_ray/")
        for module in imports(path)
        if top(module) in ("envs", "jobs", "tests")
    ]
    assert not wrong, "\n".join(wrong)


def test_environments_import_only_agents_grading_and_sandbox() -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in python_files("envs/")
        for module in imports(path)
        if (top(module) == "lemur_ray" and module.split(".")[1] not in ENVS_MAY_IMPORT) or top(module) == "jobs"
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_jobs() -> None:
    wrong = [name(p) for p in python_files("lemur_ray/", "envs/") if any(top(m) == "jobs" for m in imports(p))]
    assert not wrong, wrong


def test_jax_stays_out_of_agents_sandbox_grading_envs_and_rollout() -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in python_files(*WITHOUT_JAX)
        for module in imports(path)
        if top(module) in BUILT_ON_JAX
    ]
    assert not wrong, "\n".join(wrong)


def test_ray_is_imported_only_in_its_few_files() -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in python_files("lemur_ray/", "envs/")
        for module in imports(path)
        if top(module) == "ray" and name(path) not in WITH_RAY
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


def text_files() -> list[tuple[str, str]]:
    out = []
    for path in tracked():
        if path.suffix.lstrip(".") in FOREIGN or path.suffix == "" or path.parent.name == ".ci":
            out.append((name(path), path.read_text(encoding="utf-8", errors="replace")))
    return out


def hits(pattern: str, files: list[tuple[str, str]]) -> list[str]:
    return [
        f"{file}:{number}: {line.strip()[:120]}"
        for file, text in files
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_no_file_ends_the_ray_of_the_whole_machine_or_joins_whichever_it_finds() -> None:
    # Spelled in pieces, so that this file does not hold what it looks for. Prose may name the command to warn of it.
    code = [(file, text) for file, text in text_files() if not file.endswith(".md")]
    stop = r"\bray" + r"[\"',\s]+stop\b"
    auto = r"""address\s*=\s*["']au""" + r"""to["']|RAY_ADDRESS["'\]\s]*[=:,]\s*["']?au""" + "to"
    assert not hits(stop, code), hits(stop, code)
    assert not hits(auto, code), hits(auto, code)


def test_no_file_holds_paths_of_a_developers_machine_or_hosts_of_a_registry() -> None:
    machine = "/wo" + "rk/|/ro" + r"ot/\.|/opt/venv" + "-dev|/home/[a-z]+/(src|repo|code)"
    hosts = "|".join(
        ("py" + r"pi\.org", "python" + "hosted", "deb" + r"ian\.org", "npm" + r"js\.", "proxy" + r"\.golang")
    )
    links = r"^\s*(--)?(extra-)?index" + r"-url|find" + r"-links\s|\bfi" + "le:///"
    for pattern in (machine, hosts):
        assert not hits(pattern, text_files()), hits(pattern, text_files())
    locks = [(file, text) for file, text in text_files() if file.endswith(".lock")]
    assert locks
    assert not hits(f"{links}|://", locks), hits(links, locks)


def test_lock_files_hold_nothing_but_pinned_names() -> None:
    for path in ROOT.glob("requirements*.lock"):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        wrong = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)]
        assert lines
        assert not wrong, f"{path.name}: {wrong[:3]}"


def test_no_file_is_named_after_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    wrong = [name(p) for p in tracked() if empty & {part.removesuffix(".py") for part in p.relative_to(ROOT).parts}]
    assert not wrong, wrong


def test_no_file_of_code_is_longer_than_400_lines() -> None:
    long = [
        f"{name(p)}: {n}" for p in python_files("lemur_ray/", "envs/") if (n := len(p.read_text().splitlines())) > 400
    ]
    assert not long, f"look for the second idea in {long}"


def test_jobs_are_thin_and_begin_with_the_bootstrap() -> None:
    wrong = []
    for path in python_files("jobs/"):
        if path.name == "_path.py":
            continue
        lines = path.read_text().splitlines()
        if len(lines) > 60:
            wrong.append(f"{name(path)} has {len(lines)} lines, expected at most 60")
        body = [n for n in ast.parse(path.read_text()).body if not isinstance(n, ast.Expr)]
        plain = [n for n in body if not (isinstance(n, ast.ImportFrom) and n.module == "__future__")]
        first = plain[0] if plain else None
        if not (isinstance(first, ast.Import) and first.names[0].name == "_path"):
            wrong.append(f"{name(path)} does not begin with `import _path`")
    assert not wrong, "\n".join(wrong)


def test_jobs_do_not_swallow_errors() -> None:
    wrong = []
    for path in python_files("lemur_ray/", "envs/", "jobs/"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                wrong.append(f"{name(path)}:{node.lineno}: bare except")
    assert not wrong, "\n".join(wrong)


def test_the_packages_of_the_wheel_are_the_two_real_ones() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'include = ["lemur_ray*", "envs*"]' in text
    assert not list((ROOT / "lemur_ray").glob("envs")), "one module must not have two names"


def test_pinned_versions_of_the_lock_are_those_installed() -> None:
    """Tests of another version than the pinned one would prove nothing about what a user gets."""
    if not os.environ.get("CI"):
        return
    wrong = []
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if "==" in line:
            package, version = line.split("==")
            found = importlib.metadata.version(package).split("+")[0]
            if found != version:
                wrong.append(f"{package} {found}, pinned {version}")
    assert not wrong, wrong
