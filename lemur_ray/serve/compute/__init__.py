"""Computation on devices: step programs, attention, sampling, weights; `cpu` has C++ kernels. Knows no text."""
