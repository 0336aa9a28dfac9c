"""Comparison of the documents of a corpus with each other (near duplicates) and with benchmarks, as build steps."""
