"""Backends: bubblewrap and Docker, the client of their keeper, slots and control groups."""
