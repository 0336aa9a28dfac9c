"""What runs inside a sandbox as its first process. Standard library only: these files alone are taken in there."""
