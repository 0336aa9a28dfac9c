"""What runs on devices: step programs, attention, sampling, weights; `cpu` has kernels in C++. Knows no text."""
