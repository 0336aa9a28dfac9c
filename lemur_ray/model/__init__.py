"""The Llama family in flax.nnx: modules, kernels, shardings, loss. Knows no files and no training."""
