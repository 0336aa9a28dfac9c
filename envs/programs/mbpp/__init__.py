"""MBPP: short functions from one sentence and three tests."""
