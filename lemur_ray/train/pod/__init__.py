"""Accelerators that a run needs: sizes of TPU slices, hosts, chips and meshes, and checks of them. Without Ray."""
