"""Task folders of Harbor and terminal-bench: an instruction, a container image, and tests that write a reward."""
