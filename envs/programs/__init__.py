"""Code generation benchmarks: a model writes a program, which is graded by tests; one folder each."""
