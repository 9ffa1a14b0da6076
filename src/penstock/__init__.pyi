"""Public names, and the module of each. `__init__.py` imports a name from there at its first use."""

from . import columns as columns
from . import curation as curation
from . import errors as errors
from . import formats as formats
from . import recording as recording
from . import replay as replay
from . import transforms as transforms
from .conversion.convert import convert as convert
from .conversion.merge import merge as merge
from .core import spaces as spaces
from .core.columns import Columns as Columns
from .core.episode import Episode as Episode
from .core.spec import Field as Field
from .core.spec import Spec as Spec
from .data.dataset import EpisodeDataset as EpisodeDataset
from .data.from_arrays import from_arrays as from_arrays
from .data.from_arrays import from_records as from_records
from .data.iter_dataset import IterDataset as IterDataset
from .data.map_dataset import MapDataset as MapDataset
from .data.mix import mix as mix
from .data.normalize import normalize as normalize
from .data.open import open as open
from .data.summarize import statistics as statistics
from .doctor.check import check as check
from .doctor.repair import repair as repair
from .loading.loader import Loader as Loader
from .recording.record import record as record
from .recording.recorder import Recorder as Recorder
from .recording.rollout import rollout as rollout
from .replay.replay import Replay as Replay

__version__: str
