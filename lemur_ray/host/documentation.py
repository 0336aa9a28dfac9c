"""Builds the documentation site with mkdocs; the hooks below generate its navigation and reference pages.

Python names are documented by docstrings, flags by a command's help text. Needs the extra ``docs`` and a checkout."""

import contextlib
import importlib
import importlib.util
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import lemur_ray
from lemur_ray.host.commands import COMMANDS, STARTED_BY, is_checkout, program, scripts_folder

ROOT = Path(__file__).resolve().parents[2]
_SITE_FILE = "search/search_index.json"
"""File of a built site; a folder that has it may be replaced by a new site."""
COLUMNS = 100
"""Width of help texts, in characters."""
FIRST_GUIDES = ("library", "agents", "training", "instruct", "serving")
_OUTWARD_LINK = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)+((?!docs/|guides/|decisions/|log/)[A-Za-z.][^)#]*?)/?(?:#[^)]*)?\)"
)
_LIST_AFTER_TEXT = re.compile(r"^((?![-*] |\d+\. |\s|\||```).+)\n(?=(?:[-*]|\d+\.) )", re.MULTILINE)


class DocumentationError(Exception):
    """Raised if the site cannot be built here; the message says what to do."""


def build(out: Path) -> Path:
    """Build the site in the folder ``out``, replacing an earlier site there. Returns the path of its first page.
    Raises DocumentationError for a warning of mkdocs, a missing package or checkout, or other files in ``out``."""
    if out.is_dir() and any(out.iterdir()) and not (out / _SITE_FILE).is_file():
        raise DocumentationError(f"{out} holds other files, which the site would replace: give a new or empty folder")
    if not is_checkout() or not (ROOT / "mkdocs.yml").is_file():
        raise DocumentationError(
            "the pages are in the repository and in no wheel: clone it, pip install -e '.[docs]' there, and run "
            "python jobs/docs.py"
        )
    missing = [name for name in ("mkdocs", "material", "mkdocstrings") if not importlib.util.find_spec(name)]
    if missing:
        raise DocumentationError(f"{missing[0]} is not installed: pip install 'lemur-ray[docs]'")
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    os.environ["NO_MKDOCS_2_WARNING"] = "true"  # of material, about a version of mkdocs that the extra does not allow
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out.resolve()), strict=True)
    try:
        build_pages(config)
    except Abort as error:
        raise DocumentationError(f"mkdocs build --strict: {error}") from error
    return out / "index.html"


def on_config(config: Any) -> Any:
    """Hook of mkdocs: set the navigation (``config.nav``) from the files in docs/ and the commands."""
    pages = {
        folder: [
            f"{folder}/{name}.md" for name in sorted(path.stem for path in Path(config.docs_dir, folder).glob("*.md"))
        ]
        for folder in ("guides", "decisions", "log")
    }
    first = [f"guides/{name}.md" for name in FIRST_GUIDES]
    pages["guides"].sort(key=lambda page: first.index(page) if page in first else len(first))
    commands = [{f"lemur {name}": f"reference/commands/{name}.md"} for name in COMMANDS]
    reference = [{"Python": "reference/python.md"}, "formats.md", {"Commands": commands}]
    config.nav = [
        {"Quickstart": "index.md"}, {"Guides": pages["guides"]}, {"Reference": reference},
        {"Inside": ["house.md", {"Decisions": pages["decisions"]}, {"Log": ["log.md", *pages["log"]]}]},
    ]  # fmt: skip
    return config


def on_files(files: Any, config: Any) -> Any:
    """Hook of mkdocs: add the generated reference pages, one for Python and one per command."""
    from mkdocs.structure.files import File

    pages = {"reference/python.md": _python_reference()}
    pages |= {f"reference/commands/{name}.md": _command_reference(name) for name in COMMANDS}
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Hook of mkdocs: replace links to files outside docs/ by their text and path, and put the blank line that mkdocs
    needs before a list that follows a line of text."""
    markdown = _OUTWARD_LINK.sub(r"\1 (`\2`)", markdown)
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LIST_AFTER_TEXT.sub(r"\1\n\n", part) for part in parts)


def _python_reference() -> str:
    promise = "These names keep their meaning within a major version"
    head = f"# Python\n\n`import lemur_ray as lr` brings in neither jax nor ray. {promise}.\n\n"
    return head + "\n\n".join(f"::: lemur_ray.{name}" for name in lemur_ray.__all__) + "\n"


def _command_reference(name: str) -> str:
    script, summary = COMMANDS[name]
    return (
        f"# lemur {name}\n\n{summary[:1].upper()}{summary[1:]}. In a checkout also `python jobs/{script}.py`.\n\n"
        f"```text\n{_help(script)}\n```\n"
    )


def _help(script: str) -> str:
    """Text that ``lemur NAME --help-all`` prints; ``script`` is the name of its job, without ``.py``."""
    folder = str(scripts_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    printed = io.StringIO()
    changed = {"COLUMNS": str(COLUMNS), STARTED_BY: "lemur"}
    before, argv = {name: os.environ.get(name) for name in changed}, sys.argv
    os.environ.update(changed)
    sys.argv = [program(script), "--help-all"]
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            importlib.import_module(script).main(["--help-all"])
    finally:
        sys.argv = argv
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
    return printed.getvalue().strip()
