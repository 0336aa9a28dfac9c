"""Prompts of browser tasks. Know no browser."""
