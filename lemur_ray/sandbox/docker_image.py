"""Builds an image of the Docker sandbox and prints its name: ``python -m lemur_ray.sandbox.docker_image [IMAGE]``.

``IMAGE``: a folder of ``cluster/images``; default: the plain one. See ``backends/docker_image.py``."""

import sys

from lemur_ray.sandbox.backends.docker_image import ensure
from lemur_ray.sandbox.sandbox import SandboxUnavailable

if __name__ == "__main__":
    try:
        print(ensure(*sys.argv[1:2]).name)
    except SandboxUnavailable as unavailable:
        sys.exit(str(unavailable))
