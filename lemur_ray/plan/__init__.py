"""Order of training rows as a pure function of row number and seed, and readers of rows in that order."""
