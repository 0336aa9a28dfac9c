"""What runs inside the sandbox: standard library and IPython alone."""
