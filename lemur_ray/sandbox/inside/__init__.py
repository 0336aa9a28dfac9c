"""Code that runs inside a sandbox. Standard library only, since no other package is available there."""
