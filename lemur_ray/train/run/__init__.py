"""A run's folder from outside: who writes it, where its seconds went, and who watches. Knows no step and no mesh."""
