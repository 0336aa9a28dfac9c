"""Persistent storage on a disk, a mount or in a bucket: file systems, conditional writes, leases, caches."""
