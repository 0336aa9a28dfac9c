"""Reading and writing model weights slice by slice: Hugging Face, safetensors, orbax. Knows no training."""
