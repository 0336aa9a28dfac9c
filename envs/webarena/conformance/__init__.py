"""Compares our evaluators, parser and observations with upstream's recorded behaviour: ``python -m`` this package."""
