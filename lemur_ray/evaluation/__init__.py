"""Evaluations of a policy on one benchmark, or a suite of them, from the command line to the report pages.

Reading order: ``preflight`` (can it run), ``evaluate`` (play and report one benchmark), ``suites`` (all benchmarks of a
table of the paper as one run), ``gold_check`` (do a benchmark's reference answers score 1), ``solved_export`` (solved
episodes as instruction data)."""
