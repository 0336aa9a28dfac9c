"""Games as data: what the world is made of, drawn by number, read from ALFWorld's own files. Knows no play."""
