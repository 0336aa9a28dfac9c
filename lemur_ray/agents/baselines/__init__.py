"""Policies without a model: a person at the terminal, the expert, a random action. For tests and baselines."""
