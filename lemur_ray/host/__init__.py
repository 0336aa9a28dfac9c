"""This host: paths, JSON files, file locks, full disks, free ports, durations in words. No network, no Ray."""
