"""Bundles: archives of files or folders, named by their SHA-256, with which tasks reach their files on other hosts."""
