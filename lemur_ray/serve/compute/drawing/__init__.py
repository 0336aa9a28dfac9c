"""How the tokens of a step are drawn: on accelerators within the step, on CPUs from its logits."""
