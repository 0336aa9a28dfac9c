"""The order of the house: names that say something, files and folders of a size, and what no file may hold."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from lemur_ray.agents.policy_spec import KINDS
from tests.prose_comparisons import excused, message_comparisons, prose_comparisons
from tests.source_tree import ROOT, name, python_files, tracked

FOREIGN = ("sh", "py", "yaml", "yml", "toml", "lock", "md", "txt", "cfg", "json")
MOST_ENTRIES = 18
"""Of one folder, a folder within counting as one; the tops of the package, the jobs and the tests apart."""
LINES = {"median": 110, "90th percentile": 240, "largest": 350}
NAMES_OF_OTHERS = frozenset(
    [
        "attrs",
        "docker",
        "fastapi",
        "flax",
        "html",
        "http",
        "httpx",
        "jax",
        "json",
        "numpy",
        "openai",
        "optax",
        "orbax",
        "pydantic",
        "pytest",
        "ray",
        "requests",
        "rich",
        "tokenize",
        "torch",
        "transformers",
        "types",
        "typing",
        "uvicorn",
        "vllm",
    ]
)
SAYS_NOTHING = frozenset(
    [
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "manager",
        "again",
        "app",
        "base",
        "choosing",
        "core",
        "front",
        "housed",
        "kept",
        "local",
        "main",
        "passes",
        "played",
        "recorded",
        "stuff",
        "words",
        "_words",
    ]
)
ROOMS_NAMED_AS_OTHERS = {"lemur_ray/serve/http", "lemur_ray/serve/openai"}
"""Folders, whose files are never imported by their last name alone."""

MOST_LINES, MOST_PARAMETERS = 60, 8
"""Of a function; ``self`` and ``cls`` are not counted."""
LONG_FUNCTIONS: dict[str, str] = {}
"""Functions beyond the limits -> why."""
UNCLEAR_FILES = ["takes", "told", "seen", "looked_at", "outside", "waiting", "guarded", "loaded", "beats", "answering"]
"""Names that say nothing about the content of a file."""
MOST_LINES = 95_000
"""Of Python outside tests. A change that needs more first joins or removes what is there: docs/decisions/075."""
MOST_DIALECT_WORDS = 60
"""How often ``said``, ``told`` and ``found`` may stand in the packages together. Only ever lowered."""
MOST_FILES_WITH_MIN_P = 4
"""Files that name one sampling option: a new option must not touch more. Only ever lowered."""
MOST_ROOMS = 24
"""Entries of ``lemur_ray/``."""


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


def test_no_file_is_named_after_nothing_or_after_a_library() -> None:
    wrong = [name(p) for p in tracked() if SAYS_NOTHING & {*name(p).split("/")[:-1], p.stem}]
    wrong += [name(p) for p in python_files("lemur_ray/", "envs/", "jobs/") if p.stem in NAMES_OF_OTHERS]
    folders = {p.parent for p in python_files("lemur_ray/", "envs/", "jobs/")}
    wrong += [name(f) for f in folders if f.name in NAMES_OF_OTHERS and name(f) not in ROOMS_NAMED_AS_OTHERS]
    assert not wrong, wrong


def test_files_are_of_a_size_that_one_reads_at_once() -> None:
    lines = {name(p): len(p.read_text().splitlines()) for p in python_files("lemur_ray/", "envs/", "jobs/")}
    sizes = sorted(size for file, size in lines.items() if not file.endswith("__init__.py"))
    found = {"median": statistics.median(sizes), "90th percentile": sizes[len(sizes) * 9 // 10], "largest": sizes[-1]}
    long = sorted(file for file, size in lines.items() if size > LINES["largest"])
    assert not long, f"look for the second idea in {long}"
    assert all(found[what] <= LINES[what] for what in LINES), f"lines of a file: {found}, expected at most {LINES}"


def test_two_test_files_of_one_name_would_hide_each_other() -> None:
    names = Counter(path.name for path in tracked() if path.name.startswith("test_") and path.suffix == ".py")
    assert not [name for name, count in names.items() if count > 1]


def test_a_folder_holds_no_more_than_one_sees_at_a_glance() -> None:
    entries: dict[Path, set[str]] = defaultdict(set)
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        if parts[0] in ("lemur_ray", "envs", "jobs", "tests") and path.name != "__init__.py":
            for level in range(1, len(parts)):
                entries[Path(*parts[:level])].add(parts[level])
    full = {str(folder): len(names) for folder, names in entries.items() if len(names) > MOST_ENTRIES}
    full = {folder: count for folder, count in full.items() if folder not in ("lemur_ray", "jobs", "tests")}
    assert not full, f"more than {MOST_ENTRIES} entries, a room within is missing: {full}"


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
    assert 'include=["lemur_ray*", "envs*"]' in (ROOT / "setup.py").read_text()
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


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function below ``tree`` with its qualified name; functions inside functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix)


def test_functions_are_of_a_size_that_one_reads_at_once() -> None:
    large = {}
    for path in python_files("lemur_ray/", "envs/", "jobs/"):
        for qualified, node in functions(ast.parse(path.read_text())):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = len({argument.arg for argument in arguments} - {"self", "cls"})
            if lines > MOST_LINES or parameters > MOST_PARAMETERS:
                large[qualified] = f"{name(path)}:{node.lineno}: {qualified}: {lines} lines, {parameters} parameters"
    wrong = [text for qualified, text in large.items() if qualified not in LONG_FUNCTIONS]
    assert not wrong, f"at most {MOST_LINES} lines and {MOST_PARAMETERS} parameters: {wrong}"
    assert not (stale := LONG_FUNCTIONS.keys() - large), f"within the limits by now, take them off the list: {stale}"


def test_no_decision_hangs_on_the_words_of_a_sentence() -> None:
    folders = ("lemur_ray/", "envs/")
    hits = [*prose_comparisons(*folders), *message_comparisons(*folders)]
    wrong = [f"{place}: {sentence[:60]!r}" for place, sentence in hits if not excused(sentence)]
    advice = "decide by an enum, a field or a class of error, or add a reason to tests/prose_comparisons.py"
    assert not wrong, f"{advice}: {wrong}"


def test_kinds_of_policies_are_distinguished_in_their_table_alone() -> None:
    wrong = [
        f"{name(path)}:{node.lineno}"
        for path in python_files("lemur_ray/", "envs/")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "kind"
        if KINDS.keys() & {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
    ]
    assert not wrong, f"add a field to PolicyKind (lemur_ray/agents/policy_spec.py): {wrong}"


def test_no_file_of_the_packages_has_a_name_that_tells_nothing() -> None:
    wrong = [name(path) for path in python_files("lemur_ray/", "envs/") if path.stem in UNCLEAR_FILES]
    assert not wrong, wrong


def test_lines_of_the_program_do_not_grow() -> None:
    files = [path for path in python_files("") if not name(path).startswith("tests/")]
    count = sum(path.read_text().count("\n") for path in files)
    assert count <= MOST_LINES, f"{count} lines, at most {MOST_LINES} may be: docs/decisions/075"


def test_words_that_stand_for_everything_grow_fewer() -> None:
    words = re.compile(r"\b(?:said|told|found)\b")
    count = sum(len(words.findall(path.read_text())) for path in python_files("lemur_ray/", "envs/"))
    assert count <= MOST_DIALECT_WORDS, f"said, told and found stand {count} times, at most {MOST_DIALECT_WORDS} may"


def test_a_sampling_option_is_named_in_few_files() -> None:
    naming = [name(path) for path in python_files("lemur_ray/") if "min_p" in path.read_text()]
    assert len(naming) <= MOST_FILES_WITH_MIN_P, naming


def test_the_package_has_few_rooms() -> None:
    rooms = {path.relative_to(ROOT).parts[1] for path in tracked() if path.relative_to(ROOT).parts[0] == "lemur_ray"}
    rooms -= {"py.typed"}  # an empty file by which type checkers know a typed package
    assert len(rooms) <= MOST_ROOMS, sorted(rooms)
