"""Rounds in which a model plays, what was good is selected, it is trained, new weights are served."""
