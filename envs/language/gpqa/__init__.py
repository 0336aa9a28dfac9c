"""GPQA: questions of biology, physics and chemistry that a search does not answer."""
