"""Question benchmarks of knowledge and reasoning: BIG-Bench Hard, MMLU and GSM8K, one folder each."""
