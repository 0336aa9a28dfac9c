"""Sources of a corpus: their files, the records of a data file, and the texts of a file."""
