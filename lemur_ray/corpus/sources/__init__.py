"""What a corpus is made of: files of each source, the records of a data file, and the texts in any of them."""
