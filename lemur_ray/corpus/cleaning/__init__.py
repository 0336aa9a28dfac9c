"""Checks of whole texts while a corpus is cleaned: web rules, language, near duplicates, benchmark contamination."""
