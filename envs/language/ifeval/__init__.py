"""IFEval: instructions whose following a program can check."""
