"""BIG-Bench Hard: 27 files of questions that need several steps of reasoning."""
