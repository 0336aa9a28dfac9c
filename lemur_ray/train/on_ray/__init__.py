"""Training runs and trials on a Ray cluster; the only part of training that imports Ray."""
