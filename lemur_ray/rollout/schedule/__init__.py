"""Schedule of a run: which tasks are played, in which order their episodes start, and which attempts are repeated."""
