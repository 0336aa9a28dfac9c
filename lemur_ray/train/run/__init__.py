"""The folder of a run: locks, seconds by item, console, sinks, failures. Knows nothing of steps and meshes."""
