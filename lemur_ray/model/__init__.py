"""The Llama family in flax.nnx and what its forward and backward pass are made of. Knows no files and no training."""
