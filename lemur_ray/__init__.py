"""lemur-ray: from raw code and text to a chat model, and from the chat model to a scored agent, on one Ray cluster.

Importing this package is light: it brings in neither jax nor ray. Import the submodule that you need.
"""

__version__ = "0.1.0"

from lemur_ray.host import renamed_modules as _renamed_modules

_renamed_modules.install()
