"""Reading and writing model weights slice by slice: Hugging Face folders, safetensors, orbax checkpoints."""
