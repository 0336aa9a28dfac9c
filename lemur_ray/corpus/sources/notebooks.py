"""Converts Jupyter notebooks to scripts: code unchanged, prose as comments, without outputs.

A notebook is recognised by its content, JSON with ``nbformat`` and cells, whether from a file or from a record.
"""

from __future__ import annotations

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
    sheets = [notebook, *(sheet for sheet in notebook.get("worksheets") or () if isinstance(sheet, dict))]
    cells = [cell for sheet in sheets for cell in sheet.get("cells") or () if isinstance(cell, dict)]
    if not any("cells" in sheet for sheet in sheets):
        return None
    pieces = [_commented(_source(cell), cell.get("cell_type")) for cell in cells]
    return "\n\n".join(piece for piece in pieces if piece.strip()) + "\n"


def _source(cell: dict[str, Any]) -> str:
    """Text of a cell, which is a string or a list of lines; ``input`` is its name in the format before 4."""
    source = cell.get("source", cell.get("input"))
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str)).strip("\n")


def _commented(source: str, kind: Any) -> str:
    if kind == "code":
        return source
    return "\n".join(f"# {line}".rstrip() for line in source.split("\n")) if source.strip() else ""
