"""Task folders of Harbor and terminal-bench: an instruction, an image, tests that write a reward."""
