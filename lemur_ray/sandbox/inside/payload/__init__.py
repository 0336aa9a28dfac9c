"""Programs whose source is sent into a session; each file uses the standard library alone."""
