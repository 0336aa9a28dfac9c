"""The 57 subjects of MMLU, each with its subfield and field as the authors group them (hendrycks/test, categories)."""

FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "humanities": {
        "history": (
            *("high_school_european_history", "high_school_us_history", "high_school_world_history", "prehistory"),
        ),
        "law": ("international_law", "jurisprudence", "professional_law"),
        "philosophy": (
            *("formal_logic", "logical_fallacies", "moral_disputes", "moral_scenarios", "philosophy"),
            "world_religions",
        ),
    },
    "other": {
        "business": ("business_ethics", "management", "marketing"),
        "health": (
            *("anatomy", "clinical_knowledge", "college_medicine", "human_aging", "medical_genetics", "nutrition"),
            *("professional_medicine", "virology"),
        ),
        "other": ("global_facts", "miscellaneous", "professional_accounting"),
    },
    "social sciences": {
        "culture": ("human_sexuality", "sociology"),
        "economics": ("econometrics", "high_school_macroeconomics", "high_school_microeconomics"),
        "geography": ("high_school_geography",),
        "politics": (
            *("high_school_government_and_politics", "public_relations", "security_studies", "us_foreign_policy"),
        ),
        "psychology": ("high_school_psychology", "professional_psychology"),
    },
    "STEM": {
        "biology": ("college_biology", "high_school_biology"),
        "chemistry": ("college_chemistry", "high_school_chemistry"),
        "computer science": (
            *("college_computer_science", "computer_security", "high_school_computer_science", "machine_learning"),
        ),
        "engineering": ("electrical_engineering",),
        "math": (
            *("abstract_algebra", "college_mathematics", "elementary_mathematics", "high_school_mathematics"),
            "high_school_statistics",
        ),
        "physics": ("astronomy", "college_physics", "conceptual_physics", "high_school_physics"),
    },
}
SUBJECTS: dict[str, tuple[str, str]] = {
    subject: (field, subfield)
    for field, subfields in FIELDS.items()
    for subfield, subjects in subfields.items()
    for subject in subjects
}
"""Subject -> (field, subfield)."""
