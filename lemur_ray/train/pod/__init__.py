"""Slices, hosts, chips and meshes of a run, as numbers and checks. Knows no Ray."""
