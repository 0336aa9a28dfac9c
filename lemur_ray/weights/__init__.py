"""Parameters on the move, slice by slice: Hugging Face, safetensors, orbax, models by name. Knows no training."""
