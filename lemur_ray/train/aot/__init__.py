"""The training step compiled for a pod that is not there: search, read the compiled program, report."""
