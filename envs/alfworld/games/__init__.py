"""Games as data: what the world is made of, drawn by number, read from and written to ALFWorld's own files."""
