"""This host: default folders, JSON files, file locks, exit codes, free ports, the command ``lemur``, old names."""
