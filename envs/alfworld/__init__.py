"""ALFWorld's text games in plain Python: generator, engine, searching expert, environment. Needs no textworld."""
