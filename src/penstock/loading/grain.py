"""Loaders as datasets of Grain, whose checkpoint classes, Orbax and MaxText then save and load their position."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.core.columns import Columns
from penstock.loading.arranged import BatchDict
from penstock.loading.loader import Loader

grain: Any = import_module("grain")


class GrainDataset(grain.IterDataset):
    """`grain.IterDataset` of the batches of a loader. Each `iter()` is one epoch, as in `Loader`.

    Arrays of `output="numpy"` are nested dicts, which are pytrees, without tickets. The loader has the share of its
    process already, so Grain must not split it again.

    Args:
        loader: The loader.

    Example:
        >>> import penstock
        >>> loader = penstock.from_arrays({"x": [1, 2, 3, 4]}, lengths=[4]).steps().loader(batch_size=2)
        >>> iterator = iter(GrainDataset(loader).map(lambda batch: batch["x"].tolist()))
        >>> first, state = next(iterator), iterator.get_state()
        >>> again = iter(GrainDataset(loader).map(lambda batch: batch["x"].tolist()))
        >>> again.set_state(state)
        >>> first, list(again)
        ([1, 2], [[3, 4]])
    """

    def __init__(self, loader: Loader[Any]) -> None:
        grain.IterDataset.__init__(self)
        self._loader = loader

    def __repr__(self) -> str:
        return f"GrainDataset({self._loader!r})"

    def __iter__(self) -> GrainIterator:
        return GrainIterator(self._loader)


class GrainIterator(grain.DatasetIterator):
    """`grain.DatasetIterator` over one epoch of a loader. `iter` of a `GrainDataset` makes it.

    Its state has plain values, and is the same in all processes.

    Args:
        loader: The loader.

    Example:
        >>> import penstock
        >>> loader = penstock.from_arrays({"x": [1, 2, 3, 4]}, lengths=[4]).steps().loader(batch_size=2)
        >>> iterator = GrainIterator(loader)
        >>> next(iterator)["x"].tolist(), iterator.get_state()["loader"]["position"]
        ([1, 2], 2)
    """

    def __init__(self, loader: Loader[Any]) -> None:
        grain.DatasetIterator.__init__(self)
        self._loader = loader
        self._batches = iter(loader)
        self._over = False  # whether a state was loaded after the last batch of its epoch

    def __next__(self) -> Any:
        self._assert_not_closed()
        if self._over:
            raise StopIteration
        return _plain(next(self._batches))

    def get_state(self) -> dict[str, Any]:
        """Return the position of the consumer, and whether it has received the last batch of the epoch."""
        return {"loader": self._loader.state_dict(), "over": self._over or self._batches.over}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state, in any epoch.

        Args:
            state: Output of `get_state`, of any number of processes.

        Raises:
            StateError: The state belongs to another dataset, plan or version.
        """
        self._loader.load_state_dict(state["loader"])
        self._batches.close()
        self._batches = iter(self._loader)
        self._over = bool(state["over"])

    def close(self) -> None:
        """Stop the threads. A second call does nothing."""
        self._batches.close()
        grain.DatasetIterator.close(self)


def _plain(batch: Any) -> Any:
    if isinstance(batch, Columns):
        return batch.tree()
    return dict(batch) if isinstance(batch, BatchDict) else batch
