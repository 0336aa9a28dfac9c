"""Readers of public data sets: one module per published format, and the list of sets."""
