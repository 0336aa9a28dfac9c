"""MATH-500: competition problems with an answer in LaTeX."""
