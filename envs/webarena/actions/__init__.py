"""Actions of an agent in a browser, and the two languages in which it writes them. Knows no browser."""
