"""HumanEval: complete a function from its docstring."""
