"""The contract of benchmarks, their discovery by name, and their requirements. Knows no benchmark."""
