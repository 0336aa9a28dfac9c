"""InterCode: tasks solved by trying again in SQL, a shell, a capture-the-flag box or Python."""
