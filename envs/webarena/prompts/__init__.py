"""Prompts of browser tasks: the system message, worked examples, and the message of each turn."""
