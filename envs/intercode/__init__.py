"""InterCode: tasks with repeated attempts in SQL, a shell, a capture-the-flag box or Python."""
