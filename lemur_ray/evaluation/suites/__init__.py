"""Suites: all benchmarks of a table of the Lemur paper, evaluated by one command with one page."""
