"""Routes, bodies, keys, metrics and the chat page of a server. Knows neither Ray nor how tokens are made."""
