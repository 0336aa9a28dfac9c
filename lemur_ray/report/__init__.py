"""From ledgers and run folders to tables, figures and one static page. Knows no model, no jax, no Ray."""
