"""tau-bench (Yao et al. 2024): an agent with tools serves a simulated user by the rules of a shop or an airline."""
