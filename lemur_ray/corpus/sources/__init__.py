"""Sources of a corpus: lists of their files, and readers of records and texts of a file."""
