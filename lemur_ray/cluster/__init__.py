"""The Ray cluster that a driver process belongs to."""
