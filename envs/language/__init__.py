"""Benchmarks of knowledge and reasoning, one folder each."""
