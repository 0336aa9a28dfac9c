"""Accelerator resources of a run: TPU slices, hosts, chips and meshes, as numbers and checks, without Ray."""
