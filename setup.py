"""What pyproject.toml cannot say: folders beside the packages that a wheel holds within ``lemur_ray``.

The scripts of ``jobs`` are ``lemur_ray/commands``, for ``lemur``; the package lists of images are ``lemur_ray/images``.
"""

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["lemur_ray*", "envs*"], exclude=["envs.webarena.sites.apps*"])
MOVED = {"lemur_ray.commands": "jobs", "lemur_ray.images": "cluster/images"}
setup(packages=[*PACKAGES, *MOVED], package_dir=MOVED)
