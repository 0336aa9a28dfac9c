"""Routes, bodies, keys, metrics and the chat page of a server. Knows nothing of Ray or of generation."""
