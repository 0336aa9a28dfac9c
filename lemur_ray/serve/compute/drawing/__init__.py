"""Steps of accelerators, which draw the tokens of their rows themselves."""
