"""InterCode-Bash and InterCode-CTF: environments around a terminal in a sandbox."""
