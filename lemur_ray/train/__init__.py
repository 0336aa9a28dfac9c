"""How a model learns: step, optimizer and guard are pure; the loop and what it writes down stand around them.

Rooms: `run` (a run's folder from outside), `pod` (slices, hosts and meshes as numbers), `on_ray` (Ray Train), `aot`
(compiled for a pod that is not there).
"""
