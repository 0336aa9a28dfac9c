"""The tasks of the stand-in suite in WebArena's format, each with the steps of an expert who solves it."""
