"""Benchmarks of other authors, with their own rules, in the form of ours."""
