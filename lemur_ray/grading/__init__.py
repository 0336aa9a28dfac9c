"""Graders: what an answer, a query, a file tree or a program is worth. Knows no policy and no model."""
