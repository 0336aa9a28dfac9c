"""Programs that run the replacement sites in a Python environment of their own: starters, settings, routes, seeders."""
