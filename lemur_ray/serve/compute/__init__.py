"""The serving engine's computations in JAX: forward pass, attention, sampling, weights; `cpu` has C++ kernels."""
