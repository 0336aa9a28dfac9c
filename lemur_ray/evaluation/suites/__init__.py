"""Suites: all benchmarks of one of the paper's tables as one evaluation. Knows no benchmark by name."""
