"""ALFWorld games as immutable data: tables of the household, a generator, and parsers of ALFWorld's own game files."""
