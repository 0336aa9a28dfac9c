"""Policies (what replies in episodes), and their messages, tasks, trajectories and recordings. No Ray, no jax."""
