"""What crosses between a policy and an environment: messages, tasks, trajectories. Knows no model, no Ray, no jax."""
