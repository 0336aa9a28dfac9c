"""The 57 subjects of MMLU, each with its subfield and field as the authors group them (hendrycks/test, categories)."""

import tomllib
from pathlib import Path

FIELDS: dict[str, dict[str, list[str]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SUBJECTS: dict[str, tuple[str, str]] = {
    subject: (field, subfield)
    for field, subfields in FIELDS.items()
    for subfield, subjects in subfields.items()
    for subject in subjects
}
"""Subject -> (field, subfield)."""
