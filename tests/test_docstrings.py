"""Public docstrings have sections: every argument is described, and every class and function has an example."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock

# Modules whose public names are all checked, besides the names that `penstock` exports.
MODULES = (
    "penstock.conversion.convert",
    "penstock.conversion.report",
    "penstock.core.blocks",
    "penstock.core.boundary",
    "penstock.core.columns",
    "penstock.core.episode",
    "penstock.core.ragged",
    "penstock.core.selection",
    "penstock.core.space_json",
    "penstock.core.spaces",
    "penstock.core.spec",
    "penstock.core.turns",
    "penstock.data.augment",
    "penstock.data.column_paths",
    "penstock.data.dataset",
    "penstock.data.from_arrays",
    "penstock.data.iter_dataset",
    "penstock.data.jigsaw",
    "penstock.data.lengths",
    "penstock.data.map_dataset",
    "penstock.data.map_function",
    "penstock.data.measure",
    "penstock.data.mix",
    "penstock.data.open",
    "penstock.data.origin",
    "penstock.data.records",
    "penstock.data.sample_blocks",
    "penstock.errors",
    "penstock.flow.limits",
    "penstock.flow.lossy",
    "penstock.flow.ordered_map",
    "penstock.formats.base.format",
    "penstock.formats.base.source",
    "penstock.formats.base.writer",
    "penstock.formats.memory",
    "penstock.load.adapter",
    "penstock.load.cursor",
    "penstock.load.engine",
    "penstock.load.explain",
    "penstock.load.batch_source",
    "penstock.load.block_source",
    "penstock.load.jax",
    "penstock.load.pipeline_source",
    "penstock.load.loader",
    "penstock.load.position_source",
    "penstock.load.printed",
    "penstock.load.ranks",
    "penstock.load.roofline",
    "penstock.load.shares",
    "penstock.load.skips",
    "penstock.load.staging",
    "penstock.load.ticket",
    "penstock.load.torch",
    "penstock.load.why",
    "penstock.plan.anchored",
    "penstock.plan.base",
    "penstock.plan.episodes",
    "penstock.plan.nominal",
    "penstock.plan.outputs",
    "penstock.plan.pack",
    "penstock.plan.pairs",
    "penstock.plan.repeat",
    "penstock.plan.select",
    "penstock.plan.sequences",
    "penstock.plan.shard",
    "penstock.plan.shuffle",
    "penstock.plan.split",
    "penstock.plan.steps",
    "penstock.plan.target_pairs",
    "penstock.plan.transform",
    "penstock.plan.weights",
    "penstock.plan.where",
    "penstock.plan.windows",
    "penstock.record.batch",
    "penstock.record.buffer",
    "penstock.record.checks",
    "penstock.record.collector",
    "penstock.record.hooks",
    "penstock.record.infos",
    "penstock.record.memory",
    "penstock.record.rollout",
    "penstock.record.same_step",
    "penstock.record.sink",
    "penstock.record.spaces",
    "penstock.record.vector",
)

# Packages whose exported names are all checked.
PACKAGES = ("penstock.envs", "penstock.live")

# Why these classes and functions have no example.
NO_EXAMPLE = {
    **dict.fromkeys(
        ("penstock.envs.registry.register", "penstock.envs.registry.unregister"),
        "changes the benchmarks that the process knows",
    ),
    **dict.fromkeys(
        ("penstock.envs.paths.demo_paths", "penstock.envs.paths.find_processed"),
        "looks for existing files",
    ),
    **dict.fromkeys(
        (
            "penstock.data.origin.DatasetOrigin",
            "penstock.data.origin.DerivedOrigin",
            "penstock.data.sample_blocks.SampleBlocks",
            "penstock.data.sample_blocks.SampleBlockIterator",
            "penstock.data.map_function.Mapped",
            "penstock.data.map_function.ColumnFunction",
            "penstock.data.measure.MeasuredSource",
            "penstock.formats.base.source.LazyMetadata",
        ),
        "a part of a dataset or an episode, which users do not make",
    ),
    **dict.fromkeys(
        (
            "penstock.plan.nominal.NominalPlan",
            "penstock.plan.repeat.RepeatedPlan",
            "penstock.plan.select.SelectedPlan",
            "penstock.plan.select.SubsetPlan",
            "penstock.plan.sequences.SequencePlan",
            "penstock.plan.shard.ShardPlan",
            "penstock.plan.shuffle.ShuffledPlan",
        ),
        "the plan of a transform, which has the example",
    ),
    **dict.fromkeys(
        (
            "penstock.core.blocks.BlockIterator",
            "penstock.envs.benchmark.Benchmark",
            "penstock.live.chunk_sources.Inlet",
            "penstock.core.blocks.BlockOrigin",
            "penstock.data.augment.Augmentation",
            "penstock.data.augment.PictureAugmentation",
            "penstock.load.batch_source.BatchSource",
            "penstock.load.pipeline_source.BatchPipeline",
            "penstock.load.pipeline_source.TicketReader",
            "penstock.load.pipeline_source.TicketedBatch",
            "penstock.load.pipeline_source.DecodedBatch",
        ),
        "an interface: its subclasses have examples",
    ),
    **dict.fromkeys(
        (
            "penstock.core.boundary.is_of_call",
            "penstock.core.boundary.loading_state",
            "penstock.load.adapter.Adapter",
            "penstock.load.cursor.Cursor",
            "penstock.load.cursor.saved",
            "penstock.load.engine.LoaderIterator",
            "penstock.load.explain.explain",
            "penstock.load.block_source.BlockSource",
            "penstock.load.batch_source.Job",
            "penstock.load.position_source.PositionSource",
            "penstock.load.position_source.RowSize",
            "penstock.load.pipeline_source.LiveExplanation",
            "penstock.load.pipeline_source.PipelineSource",
            "penstock.load.position_source.EpochSlice",
            "penstock.load.roofline.measure_roofline",
            "penstock.load.shares.Shares",
            "penstock.load.torch.TorchStreamIterator",
            "penstock.load.why.why",
        ),
        "a part of a loader, which has the examples",
    ),
    **dict.fromkeys(
        (
            "penstock.record.batch.BatchBuffer",
            "penstock.record.buffer.EpisodeBuffer",
            "penstock.record.buffer.TextBatchColumn",
            "penstock.record.buffer.batch_column_for",
            "penstock.record.buffer.column_for",
            "penstock.record.buffer.storer",
            "penstock.record.same_step.copy_before_reset",
            "penstock.record.sink.Recording",
            "penstock.record.sink.Sink",
        ),
        "a part of a collector, which has the examples",
    ),
    **dict.fromkeys(
        (
            "penstock.formats.base.source.check_values",
            "penstock.load.ranks.check_ranks",
            "penstock.plan.base.check_ends",
            "penstock.plan.transform.require_int",
            "penstock.plan.select.check_takable",
        ),
        "a check of arguments, which returns nothing",
    ),
}

ENTRY = re.compile(r"    (\w+): \S")


def is_error(subject: Any) -> bool:
    """Whether a class is an exception: these are raised and not called, so they need no example."""
    return inspect.isclass(subject) and issubclass(subject, BaseException)


def exported() -> dict[str, Any]:
    """The functions and classes that `penstock` exports and those of `MODULES`, by their full name."""
    spaces = [value for value in vars(penstock.spaces).values() if inspect.isclass(value)]
    subjects = [getattr(penstock, name) for name in penstock.__all__ if name != "spaces"]
    subjects += [value for value in spaces if value.__module__ == penstock.spaces.__name__]
    for package in map(importlib.import_module, PACKAGES):
        subjects += [getattr(package, name) for name in package.__all__]
    for module in map(importlib.import_module, MODULES):
        subjects += [
            value
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    named = {f"{each.__module__}.{each.__qualname__}": each for each in subjects if hasattr(each, "__qualname__")}
    return {name: each for name, each in named.items() if inspect.isclass(each) or inspect.isfunction(each)}


def described(doc: str | None) -> set[str]:
    """The arguments that a docstring describes."""
    names: set[str] = set()
    inside = False
    for line in inspect.cleandoc(doc or "").splitlines():
        if not line.startswith(" ") and line:
            inside = line == "Args:"
        elif inside and (entry := ENTRY.match(line)):
            names.add(entry[1])
    return names


def arguments(call: Callable[..., Any]) -> set[str]:
    """The names of the arguments of a function, without `self`, `cls` and those that begin with an underscore."""
    return {name for name in inspect.signature(call).parameters if name not in {"self", "cls"} and name[0] != "_"}


def ours(cls: type) -> list[type]:
    """The classes of penstock that a class is made of."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] == "penstock"]


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that a class defines."""
    for name, member in vars(cls).items():
        call = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(call) and (not name.startswith("_") or name == "__getitem__") and call.__doc__:
            yield name, call


def undescribed(call: Callable[..., Any], docs: list[str | None]) -> str | None:
    """What is wrong with the best of the docstrings that may describe a function's arguments."""
    wanted = arguments(call)
    found = [described(doc) for doc in docs]
    if any(names == wanted for names in found):
        return None
    return f"describes {sorted(found[0])}, has {sorted(wanted)}"


SUBJECTS = exported()


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_argument_is_described(name: str) -> None:
    subject = SUBJECTS[name]
    if inspect.isfunction(subject):
        assert undescribed(subject, [subject.__doc__]) is None
        return
    wrong = {}
    if any("__init__" in vars(base) for base in ours(subject)) and not getattr(subject, "_is_protocol", False):
        wrong["__init__"] = undescribed(subject.__init__, [base.__doc__ for base in ours(subject)])
    for method, call in methods(subject):
        same = [vars(base)[method] for base in ours(subject) if method in vars(base)]
        wrong[method] = undescribed(call, [each.__doc__ for each in same])
    assert {method: problem for method, problem in wrong.items() if problem} == {}


def test_every_class_and_function_has_an_example() -> None:
    lacking = {name for name, each in SUBJECTS.items() if "Example:" not in (each.__doc__ or "") and not is_error(each)}
    assert lacking == set(NO_EXAMPLE)


def test_arguments_that_are_not_described_are_found() -> None:
    def function(size: int, seed: int) -> None:
        """Do it.

        Args:
            size: Rows of a block.

        Raises:
            ValueError: seed: no argument.
        """

    assert undescribed(function, [function.__doc__]) == "describes ['size'], has ['seed', 'size']"
