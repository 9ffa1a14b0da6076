"""What records episodes, besides the names of `penstock`. `__init__.py` imports a name at its first use."""

from .collector import Collector as Collector
from .policies import PolicyWeights as PolicyWeights
from .policies import WeightsFile as WeightsFile
from .rollout import rollout_vector as rollout_vector
from .rollout_spec import RolloutSpec as RolloutSpec
from .rollout_worker import RolloutWorker as RolloutWorker
from .vector import VectorCollector as VectorCollector
