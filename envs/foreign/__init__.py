"""Benchmarks of other authors, run by their own rules: Gymnasium text environments and Harbor task folders."""
