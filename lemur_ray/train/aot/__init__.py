"""Ahead-of-time compilation of the training step for an absent pod: search, analysis of the program, report."""
