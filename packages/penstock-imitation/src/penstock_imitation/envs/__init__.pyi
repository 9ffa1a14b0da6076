"""Public names, and the module of each. `__init__.py` imports a name from there at its first use."""

from .benchmark import Benchmark as Benchmark
from .benchmark import Factory as Factory
from .benchmark import image_space as image_space
from .config import Config as Config
from .config import EnvConfig as EnvConfig
from .config import EnvDataConfig as EnvDataConfig
from .config import VecEnvOptions as VecEnvOptions
from .paths import demo_paths as demo_paths
from .paths import find_processed as find_processed
from .paths import processed_dir as processed_dir
from .registry import available as available
from .registry import color_space_of as color_space_of
from .registry import named as named
from .registry import register as register
from .registry import spaces_of as spaces_of
from .registry import unregister as unregister
from .section import update as update
from .toy import expert as expert
from .vector import env_seed as env_seed
from .vector import final_observations as final_observations
from .vector import load_vec_env as load_vec_env
