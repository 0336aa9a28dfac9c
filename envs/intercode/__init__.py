"""InterCode: benchmarks of SQL, shell, capture-the-flag and Python tasks with feedback after every attempt."""
