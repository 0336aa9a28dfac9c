"""Connection of a driver process to its Ray cluster, environment variables for Ray, and a watch over the head."""
