"""Tables, figures and static pages made from ledgers and run folders. Knows no model, no jax, no Ray."""
