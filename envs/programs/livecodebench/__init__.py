"""LiveCodeBench: programs for contest problems, by the date of the contest."""
