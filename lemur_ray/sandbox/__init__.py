"""Where code of a model runs: one interface, one attack suite for every backend."""
