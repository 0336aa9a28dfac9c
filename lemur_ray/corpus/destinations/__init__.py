"""Destinations of a corpus build: a folder or a bucket, and the exchange of files between its steps."""
