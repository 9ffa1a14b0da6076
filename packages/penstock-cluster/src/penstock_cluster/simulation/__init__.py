"""Predict what training on many hosts asks of storage: bytes, requests a second, and how long batches are waited for.

A plan is arithmetic, so the blocks that a host will read are known before anything is read. `reads` finds them for
sampled positions, `storage` has the constants of a storage, and measures them, `queueing` simulates the requests of all
hosts, and `simulate` puts these together for several numbers of hosts and orders of samples.
"""

from penstock_cluster.simulation.measure import measure_storage
from penstock_cluster.simulation.simulate import HostFigures, HostSimulation, simulate
from penstock_cluster.simulation.storage import OBJECT_STORE, StorageConstants

__all__ = ["OBJECT_STORE", "HostFigures", "HostSimulation", "StorageConstants", "measure_storage", "simulate"]
