"""`Layout`: names, dtypes and order of the arrays of a batch as a trainer wants them, before tensors are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.core.columns import Columns, under
from penstock.core.narrowing import is_listed, is_mapping
from penstock.core.ragged import Array, Ragged
from penstock.errors import ArgumentError, SpecError, suggestion
from penstock.loading import layouts_packs, layouts_rl
from penstock.loading.arranged import BatchDict, mark_of, marked, through, tuple_class
from penstock.loading.ticket import Batch

Arrange = Callable[[Batch], Any]
"""Returns the columns of a batch as columns, a nested dict or a nested tuple. Leaves are arrays or plain values."""


@dataclass(frozen=True)
class NamedLayout:
    """Layout of a library: the function, and the address of the page or file that documents it."""

    arrange: Arrange
    source: str


LAYOUTS: dict[str, NamedLayout] = {
    "sb3": NamedLayout(
        layouts_rl.sb3,
        "https://github.com/DLR-RM/stable-baselines3/blob/v2.9.2/stable_baselines3/common/buffers.py",
    ),
    "d3rlpy": NamedLayout(
        layouts_rl.d3rlpy, "https://github.com/takuseno/d3rlpy/blob/v2.8.1/d3rlpy/dataset/mini_batch.py"
    ),
    "corl": NamedLayout(layouts_rl.corl, "https://github.com/tinkoff-ai/CORL/blob/main/algorithms/offline/td3_bc.py"),
    "torchrl": NamedLayout(layouts_rl.torchrl, "https://docs.pytorch.org/rl/stable/reference/data_datasets.html"),
    "tianshou": NamedLayout(
        layouts_rl.tianshou, "https://github.com/thu-ml/tianshou/blob/v2.0.1/tianshou/data/buffer/buffer_base.py"
    ),
    "transformers": NamedLayout(
        layouts_packs.transformers, "https://huggingface.co/docs/transformers/main_classes/data_collator"
    ),
    "transformers_mask": NamedLayout(
        layouts_packs.transformers_mask, "https://huggingface.co/docs/transformers/attention_interface"
    ),
    "trl": NamedLayout(layouts_packs.trl, "https://huggingface.co/docs/trl/reducing_memory_usage"),
    "torchtitan": NamedLayout(
        layouts_packs.torchtitan,
        "https://github.com/pytorch/torchtitan/blob/v0.3.0/torchtitan/hf_datasets/text_datasets.py",
    ),
    "megatron": NamedLayout(
        layouts_packs.megatron,
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/datasets/sft_dataset.py",
    ),
    "maxtext": NamedLayout(
        layouts_packs.maxtext,
        "https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/input_pipeline/input_pipeline_utils.py",
    ),
}
"""Every layout that has a name."""


class Layout:
    """Function that arranges the arrays of a batch as a trainer wants them. `loader` makes it from its arguments.

    Steps in this order: `float32`, `rename`, `layout`. Rows, tickets and weights stay as they are.

    Args:
        layout: Name of a layout in `LAYOUTS`; names of columns, for a tuple in this order; or a function that is called
            with each `Batch` and returns columns, or a nested dict or tuple of arrays and plain values. The default is
            None: the columns.
        float32: Whether to convert float64 columns to float32. Other dtypes stay. The default is False.
        rename: New name of a column, or of all columns below a prefix, by its name. The longest prefix counts. The
            default is None: names stay.

    Raises:
        ArgumentError: There is no such layout, or an argument has another type.
        SpecError: When called: a column is missing or does not fit the layout, or two columns have one name.

    Example:
        >>> import numpy as np
        >>> batch = Batch({"observations": {"x": np.zeros(3)}, "actions": np.arange(3)})
        >>> Layout(float32=True, rename={"observations": "obs"})(batch)
        Columns(obs/x: float32[3], actions: int64[3])
        >>> Layout(("actions", "observations/x"))(batch)
        BatchTuple(actions=array([0, 1, 2]), x=array([0., 0., 0.]))
    """

    def __init__(
        self,
        layout: str | Sequence[str] | Arrange | None = None,
        float32: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> None:
        self._arrange = None if layout is None else _arrange(layout)
        self._float32 = float32
        self._rename = _checked_names(rename)
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = (), ()  # of the columns of the last batch, and new ones

    def __call__(self, batch: Columns) -> Batch | BatchDict | tuple[Any, ...]:
        """Return the arrays of a batch, with its ticket and weight."""
        flat: dict[str, Array] = batch.flat
        if self._float32:
            flat = {path: _single(array) for path, array in flat.items()}
        if self._rename:
            flat = dict(zip(self._new_names(tuple(flat)), flat.values(), strict=True))
        mark = mark_of(batch)
        columns = Batch.of(Columns.of_flat(flat, batch.n), *mark)
        return columns if self._arrange is None else marked(self._arrange(columns), mark)

    def _new_names(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        if paths != self._names[0]:
            self._names = paths, _renamed(paths, self._rename)
        return self._names[1]


class ArrangedOutput:
    """Output of tensors or JAX arrays that arranges each batch first."""

    def __init__(self, layout: Layout, output: Callable[[Batch], Any]) -> None:
        self._layout, self._output = layout, output
        self.pin: bool = getattr(output, "pin", False)
        self.device: Any = getattr(output, "device", None)

    def __call__(self, batch: Batch) -> Any:
        arranged = self._layout(batch)
        return self._output(arranged) if isinstance(arranged, Batch) else through(arranged, batch.n, self._output)


def _arrange(layout: object) -> Arrange:
    if isinstance(layout, str):
        if layout not in LAYOUTS:
            raise ArgumentError(
                f"expected a layout among {list(LAYOUTS)}, got {layout!r}{suggestion(layout, LAYOUTS)}; for other "
                "layouts give the names of columns, or a function of a batch"
            )
        return LAYOUTS[layout].arrange
    if callable(layout):
        return layout
    if is_listed(layout) and layout and all(isinstance(name, str) for name in layout):
        names: tuple[str, ...] = tuple(layout)
        return partial(_in_order, names=names)
    raise ArgumentError(f"expected a layout's name, names of columns or a function, got {layout!r}")


def _in_order(batch: Batch, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return columns as a tuple. A prefix gives a dict of the columns below it."""
    values: list[Any] = []
    for name in names:
        if name not in batch:
            raise SpecError(
                f"expected the column {name!r} for a tuple of {list(names)}, got {list(batch)}{suggestion(name, batch)}"
            )
        value: Any = batch[name]
        values.append(value.tree() if isinstance(value, Columns) else value)
    return tuple_class(*names)(*values)


def _single(array: Array) -> Array:
    if array.dtype.kind != "f" or array.dtype.itemsize != 8:
        return array
    return replace(array, values=array.values.astype("f4")) if isinstance(array, Ragged) else array.astype("f4")


def _checked_names(rename: object) -> dict[str, str]:
    if rename is None:
        return {}
    if not is_mapping(rename) or not all(isinstance(text, str) and text for pair in rename.items() for text in pair):
        raise ArgumentError(f"expected new names of columns by their names, got {rename!r}")
    return dict(rename)


def _renamed(paths: tuple[str, ...], rename: Mapping[str, str]) -> tuple[str, ...]:
    """Return the new name of each column."""
    if unknown := [name for name in rename if not any(under(name, path) for path in paths)]:
        raise SpecError(f"expected columns {unknown} to rename, got {list(paths)}{suggestion(unknown[0], paths)}")
    names: list[str] = []
    for path in paths:
        prefix = max((name for name in rename if under(name, path)), key=len, default=None)
        names.append(path if prefix is None else rename[prefix] + path[len(prefix) :])
    for name in names:
        if (same := [path for path, other in zip(paths, names, strict=True) if under(name, other)])[1:]:
            raise SpecError(f"expected different names of columns, got {name!r} for {same}; choose another")
    return tuple(names)
