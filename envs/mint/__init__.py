"""MINT: eight subsets, solved by code and answers over a few turns, after mint-bench 3f7f12c (Apache-2.0)."""
