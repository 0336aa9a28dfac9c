"""Tokenizers and chat templates: text to ids and back, and which ids are trained. Knows no files of a corpus."""
