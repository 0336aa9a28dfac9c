"""Everything around the steps of a run: its folder and lock, time accounting, console, metrics sinks, failures."""
