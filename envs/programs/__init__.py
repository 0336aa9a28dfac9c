"""Benchmarks of programs that a model writes, one folder each."""
