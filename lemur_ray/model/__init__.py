"""The Llama family in JAX (flax.nnx): forward pass, attention kernels, shardings, loss."""
