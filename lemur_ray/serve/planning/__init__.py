"""Plans of a served model on devices that are described, not attached: sizes by formula, and compiled programs."""
