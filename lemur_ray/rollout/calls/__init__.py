"""Calls of environments and policies in an episode: deadlines, errors, and checks of what environments return."""
