"""Causal attention over packed documents: one function (`dispatch`), each implementation in a file of its own."""
