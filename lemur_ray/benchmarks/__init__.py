"""What a benchmark declares (tasks, options, scoring), how it is discovered by name, and what it requires."""
