"""Converts Jupyter notebooks to scripts: code unchanged, prose as comments, without outputs.

A notebook is recognised by its content, JSON with ``nbformat`` and lists of cells that all say their type, whether
from a file or from a record."""

import json
from typing import Any


def script_of_notebook(text: str) -> str | None:
    """The notebook ``text`` (JSON) as a script, with an empty line between cells; None if it is not a notebook."""
    if not text.lstrip().startswith("{") or '"nbformat"' not in text:
        return None
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    sheets = notebook["worksheets"] if isinstance(notebook.get("worksheets"), list) else [notebook]
    lists = [sheet.get("cells") if isinstance(sheet, dict) else None for sheet in sheets]
    if not lists or not all(isinstance(cells, list) for cells in lists):
        return None
    cells = [cell for cells in lists for cell in cells or ()]
    if not all(isinstance(cell, dict) and isinstance(cell.get("cell_type"), str) for cell in cells):
        return None
    pieces = [_commented(_source(cell), cell["cell_type"]) for cell in cells]
    return "\n\n".join(piece for piece in pieces if piece.strip()) + "\n"


def _source(cell: dict[str, Any]) -> str:
    """Text of a cell, which is a string or a list of lines; ``input`` is its name in the format before 4."""
    source = cell.get("source", cell.get("input"))
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str)).strip("\n")


def _commented(source: str, kind: str) -> str:
    if kind == "code":
        return source
    return "\n".join(f"# {line}".rstrip() for line in source.split("\n")) if source.strip() else ""
