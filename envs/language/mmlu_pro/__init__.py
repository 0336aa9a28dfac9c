"""MMLU-Pro: multiple choice among ten options."""
