"""Rounds in which a model plays a benchmark's tasks, is trained on its successful episodes, and is served with new
weights."""
