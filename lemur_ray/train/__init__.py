"""Training: step, optimizer and guard are pure functions; the loop, checkpoints and records are built on them.

Packages: `run` (folder of a run and its records), `pod` (slices, hosts and meshes as numbers), `on_ray` (Ray Train),
`aot` (ahead-of-time compilation for an absent pod)."""
