"""Which tasks are played, in which order their episodes start, and which are tried again."""
