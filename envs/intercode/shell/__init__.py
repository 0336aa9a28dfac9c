"""InterCode-Bash and InterCode-CTF: environments with a shell in a sandbox."""
