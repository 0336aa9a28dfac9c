"""Tokenizers and chat templates: text to token ids and back, and which ids of a conversation are trained."""
