"""Build of a training corpus: from raw code and text to packed rows of token ids. Only on_ray.py imports Ray."""
