"""Causal attention over packed documents: one function (``dispatch.attention``) with several implementations."""
