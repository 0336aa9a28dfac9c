"""Runs and trials on a Ray cluster: the only place of training that imports Ray."""
