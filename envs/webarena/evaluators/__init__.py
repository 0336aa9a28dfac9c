"""Evaluators that score a finished episode by rules on its answer, its last URL and the contents of pages."""
