"""Calls of an episode: deadlines, environments behind them, and checks of what environments return."""
