"""What `penstock.Replay` works with. `__init__.py` imports a name at its first use."""

from .batches import ReplayBatches as ReplayBatches
from .completion_recorder import CompletionRecorder as CompletionRecorder
from .completion_recorder import PendingCompletion as PendingCompletion
from .completions import Completions as Completions
from .completions import group_advantages as group_advantages
from .group_sampler import GroupSampler as GroupSampler
from .prioritized import PrioritizedSampler as PrioritizedSampler
from .prioritized import sequence_priorities as sequence_priorities
from .ratio import SampleRatio as SampleRatio
from .samplers import RecentSampler as RecentSampler
from .samplers import UniformSampler as UniformSampler
from .samples import Transitions as Transitions
from .status import ReplayStatus as ReplayStatus
from .stratified import StratifiedSampler as StratifiedSampler
