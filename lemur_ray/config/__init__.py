"""Configuration of a run as frozen dataclasses, its hash, and the command line. Knows nothing of jax, Ray or files."""

from lemur_ray.config.command_line import parse
from lemur_ray.config.data import DataConfig, SourceConfig, format_source, parse_source
from lemur_ray.config.help_page import topics
from lemur_ray.config.json_form import did_you_mean, from_dict
from lemur_ray.config.mesh import MeshConfig
from lemur_ray.config.model import ModelConfig, RopeScaling
from lemur_ray.config.optimizer import OptimizerConfig
from lemur_ray.config.recipe import Recipe, differing_fields, identity
from lemur_ray.config.training import REMAT_POLICIES, REMAT_VALUES, TrainConfig, parse_remat
from lemur_ray.config.tuning import LoraConfig, TuningConfig
from lemur_ray.config.watching import WatchConfig

__all__ = [
    "REMAT_POLICIES", "REMAT_VALUES", "DataConfig", "LoraConfig", "MeshConfig", "ModelConfig", "OptimizerConfig",
    "Recipe", "RopeScaling", "SourceConfig", "TrainConfig", "TuningConfig", "WatchConfig", "did_you_mean",
    "differing_fields", "format_source", "from_dict", "identity", "parse", "parse_remat", "parse_source",
    "topics",
]  # fmt: skip
