"""This host: default folders, JSON files, file locks, full disks, free ports; old names of modules and functions."""
