"""One evaluation or suite from its command line to its pages.

Reading order: ``preflight`` (can it run), ``evaluate`` (play and report one benchmark), ``suites`` (all benchmarks of a
table of the paper as one run), ``gold_check`` (do a benchmark's own answers score 1), ``solved_export`` (solved
episodes as instruction data).
"""
