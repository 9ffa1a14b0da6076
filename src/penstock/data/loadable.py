"""`Loadable`: base class of everything whose batches a loader serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from typing_extensions import Unpack

import penstock  # it fetches `Loader`, which is built on this package, when a loader is made
from penstock.core.other_names import LOADING, no_argument
from penstock.plan.batched import Batches

if TYPE_CHECKING:
    import torch


class _LoaderOptions(TypedDict, total=False):
    """Arguments of `loader` whose type does not decide the type of a batch. `Loader` has their defaults."""

    float32: bool
    rename: Mapping[str, str] | None
    device: str | torch.device | None
    pin: bool | None
    sharding: Any
    drop_last: bool
    rank: int | None
    world: int | None
    threads: int | None
    prefetch: int | None
    memory: int | None
    allow_empty: bool


class Loadable:
    """Base class of `MapDataset`, `IterDataset`, and pipelines that make batches themselves.

    Example:
        >>> import numpy as np, penstock
        >>> steps = penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps()
        >>> [batch["x"].tolist() for batch in steps.loader(batch_size=4)]
        [[0, 1, 2, 3], [4, 5]]
    """

    @overload
    def loader(
        self,
        batch_size: int | Batches | None = None,
        *,
        output: Literal["numpy"] = ...,
        layout: None = ...,
        **options: Unpack[_LoaderOptions],
    ) -> penstock.Loader: ...
    @overload
    def loader(
        self,
        batch_size: int | Batches | None = None,
        *,
        output: Literal["numpy", "torch", "jax"] | Callable[[Any], Any] = ...,
        layout: str | Sequence[str] | Callable[[Any], Any] | None = ...,
        **options: Unpack[_LoaderOptions],
    ) -> penstock.Loader[Any]: ...
    def loader(
        self,
        batch_size: int | Batches | None = None,
        *,
        output: Literal["numpy", "torch", "jax"] | Callable[[Any], Any] = "numpy",
        layout: str | Sequence[str] | Callable[[Any], Any] | None = None,
        **options: Unpack[_LoaderOptions],
    ) -> penstock.Loader[Any]:
        """Return a loader: an iterable over batches, with prefetching and exact resume. See `Loader`.

        Args:
            batch_size: Samples of a batch over all ranks, at least 1, or a plan of batches such as
                `Batches(tokens=8192)`. Required for a `MapDataset`. Not allowed for an `IterDataset`, whose blocks are
                the batches, and for a pipeline, which makes them.
            output: What a batch is. `"numpy"`: a `Batch` of arrays. `"torch"`: nested dicts of tensors, and `"jax"`:
                nested dicts of JAX arrays, both made one batch ahead of the consumer. A function is called with each
                `Batch`, in order and one batch ahead, and its results are the batches. The default is `"numpy"`.
            layout: What the arrays of a batch are called, and their order. The name of a layout of
                `penstock.loading.layout.LAYOUTS`, such as `"sb3"`; names of columns, for a tuple in this order; or a
                function that is called with each `Batch` and returns columns, or a nested dict or tuple of arrays. It
                comes after `float32` and `rename`, and before tensors are made. The default is None: the columns.
            float32: Whether to convert float64 columns to float32. Other dtypes stay. The default is False.
            rename: New name of a column, or of all columns below a prefix such as `"observations"`, by its name. The
                default is None: names stay.
            device: Device to copy tensors to, for `"torch"`. The default is None: no copy.
            pin: Whether to copy tensors through reused page-locked memory, in the order of the current stream. The
                default is True for CUDA devices and False otherwise.
            sharding: Sharding of the arrays, for `"jax"`: a `jax.sharding.Sharding` for all of them, or a tree of them
                that is nested as the batch is. Over devices of several processes, every array is global, and each
                process loads the rows of its devices; JAX decides `rank` and `world`. It needs `drop_last`, and a
                `batch_size` that the devices divide. The default is None: the default device.
            drop_last: Whether to drop a short last batch of an epoch. The default is False.
            rank: Number of this process, 0 to `world - 1`. Give both `rank` and `world`, or neither. Default: from
                `torch.distributed` or `jax.distributed` if initialised, then from Ray Train, then from `RANK` in the
                environment, then 0.
            world: Number of processes. Default: as for `rank`, with `WORLD_SIZE`, then 1.
            threads: Number of background threads. 0 loads in the calling thread. The default is the number of cores
                that the process may use. An `IterDataset` has at most one thread. Not allowed for a live pipeline,
                which has threads already: `LiveOptions` has their number.
            prefetch: Most batches ahead of the consumer, at least 1. Threads work on several small batches at once, so
                a small number costs speed. By default, threads work on up to `threads + 1` groups of some thousand
                samples. If neither `threads` nor `prefetch` is given, that starts with one group and grows each time
                that the consumer waits. Not allowed for a live pipeline: `LiveOptions` has it.
            memory: Limit in bytes for data in flight and reused buffers; in a loop, all caches of the process together
                keep at most half of it. The default is 1 GiB, or a quarter of the free memory if that is less. Arrays
                that map functions allocate are not counted: leave room for them. Of a live pipeline, it limits the
                batches that `why` keeps; `LiveOptions` has the limit of what is in flight.
            allow_empty: Whether to allow datasets without a batch, for runs where some processes have no data. The
                default is False.

        Raises:
            PlanError: An argument is impossible, or the dataset has no batch. The message has the reason. A stream
                without samples raises at its end.
            ArgumentError: There is no such layout.
            MissingExtraError: The library of `output` is not installed.

        Example:
            >>> import numpy as np, penstock
            >>> steps = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6]).steps()
            >>> [batch["rewards"].tolist() for batch in steps.loader(batch_size=4)]
            [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
            >>> [batch["rewards"].sum().item() for batch in steps.loader(batch_size=3, output="torch")]
            [3.0, 12.0]
            >>> next(iter(steps.loader(batch_size=3, float32=True, rename={"rewards": "r"})))
            Columns(r: float32[3])
        """
        if (error := no_argument("loader()", options, LOADING)) is not None:
            raise error
        loaded: Any = self
        return penstock.Loader(loaded, batch_size, output=output, layout=layout, **options)
