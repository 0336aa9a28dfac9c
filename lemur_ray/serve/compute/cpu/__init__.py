"""Kernels for CPUs in C++, compiled by the machine's own compiler, as functions of JAX."""
