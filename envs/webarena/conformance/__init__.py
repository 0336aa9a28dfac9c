"""Compares this project's evaluators, parser and observations with recorded results of upstream's (libwebarena)."""
