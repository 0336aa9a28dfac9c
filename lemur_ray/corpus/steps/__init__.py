"""Steps of a corpus build that run on workers."""
