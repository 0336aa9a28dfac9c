"""What houses a sandbox: bubblewrap or a Docker container, the keeper in it, slots and control groups."""
