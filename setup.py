"""What pyproject.toml cannot say: the scripts of ``jobs`` are installed as ``lemur_ray/commands``, for ``lemur``."""

from setuptools import find_packages, setup

PACKAGES = find_packages(include=["lemur_ray*", "envs*"], exclude=["envs.webarena.sites.apps*"])
setup(packages=[*PACKAGES, "lemur_ray.commands"], package_dir={"lemur_ray.commands": "jobs"})
