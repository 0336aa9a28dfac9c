"""Steps of a corpus build that run on workers, and the keys of their outputs."""
