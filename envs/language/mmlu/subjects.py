"""The 57 subjects of MMLU, each with its subfield and field as the authors group them (hendrycks/test, categories)."""

from lemur_ray.host.json_files import toml_beside

FIELDS: dict[str, dict[str, tuple[str, ...]]] = toml_beside(__file__)
SUBJECTS: dict[str, tuple[str, str]] = {
    subject: (field, subfield)
    for field, subfields in FIELDS.items()
    for subfield, subjects in subfields.items()
    for subject in subjects
}
"""Subject -> (field, subfield)."""
