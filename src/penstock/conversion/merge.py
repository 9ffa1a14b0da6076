"""`merge`: several datasets as one new dataset, with all their columns, statistics and names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.conversion.convert import ConversionReport, convert
from penstock.core.narrowing import is_mapping
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.filled import FilledSource
from penstock.data.open import open
from penstock.errors import ArgumentError, SpecError
from penstock.formats.base.metadata import FIGURES, merged_figures
from penstock.formats.base.source import Source
from penstock.formats.joined import JoinedSource
from penstock.locations.location import Location, LocationLike


class MergedSource(JoinedSource):
    """A `JoinedSource` whose metadata has the statistics of all parts together, if each part has some."""

    @property
    @override
    def metadata(self) -> dict[str, Any]:
        statistics = merged_statistics([part.metadata.get("statistics") for part in self.parts])
        return {**super().metadata, **({"statistics": statistics} if statistics else {})}


def merge(
    datasets: Mapping[str, EpisodeDataset | Source | LocationLike] | Sequence[LocationLike],
    out: str | os.PathLike[str],
    *,
    missing: Literal["refuse", "fill"] = "refuse",
    fill: Mapping[str, Any] | None = None,
    format: str | None = None,
    **options: Any,
) -> ConversionReport:
    """Write the episodes of several datasets, one dataset after another, to a new dataset.

    The metadata of each episode gets `source`, the name of its dataset, and `part`, its number. Metadata of the
    datasets are in `parts`; entries that all have alike stay entries. Stored statistics are merged.

    Args:
        datasets: Datasets by name, or locations, which are their names without passwords and signatures.
        out: Path of the new dataset.
        missing: What to do with columns that a dataset lacks: `"refuse"` the merge, or `"fill"` them. The default is
            `"refuse"`.
        fill: Values of missing columns by path. The default for a column is zero; rows of ragged columns are empty.
        format: Format of the new dataset. The default is chosen by the ending of its name, as for `penstock.convert`.
        options: Further arguments of `penstock.convert`, such as `overwrite`.

    Returns:
        Report and certificate of the conversion.

    Raises:
        SpecError: A column has different dtypes, shapes or alignments, or is missing with `missing="refuse"`.
        ArgumentError: There are fewer than two datasets, or `fill` names no missing column.

    Example:
        >>> import numpy as np, penstock, tempfile
        >>> one = penstock.from_arrays({"rewards": np.zeros(2)}, lengths=[2])
        >>> two = penstock.from_arrays({"rewards": np.ones(1), "cost": np.ones(1)}, lengths=[1])
        >>> report = merge({"one": one, "two": two}, tempfile.mkdtemp() + "/both", missing="fill", fill={"cost": -1})
        >>> data = penstock.open(report.out)
        >>> data[0].columns["cost"].tolist(), data[1].metadata["source"]
        ([-1.0, -1.0], 'two')
    """
    named: dict[str, Any] = (
        dict(datasets) if is_mapping(datasets) else {str(Location.of(location)): location for location in datasets}
    )
    if len(named) < 2:
        raise ArgumentError(f"expected two datasets or more of different names, got {list(named)}")
    if missing not in ("refuse", "fill"):
        raise ArgumentError(f"expected missing 'refuse' or 'fill', got {missing!r}")
    with ExitStack() as opened:
        sources = {name: _source(given, opened) for name, given in named.items()}
        spec, lacking = union_of({name: source.spec for name, source in sources.items()})
        if lacking and missing == "refuse":
            gaps = "; ".join(f"{name} lacks {', '.join(paths)}" for name, paths in lacking.items())
            raise SpecError(f"expected the same columns in all datasets, got others: {gaps}; missing='fill' fills them")
        absent = {path for paths in lacking.values() for path in paths}
        if unknown := sorted(set(fill or {}) - absent):
            raise ArgumentError(f"expected fill for missing columns {sorted(absent)}, got {unknown}")
        values = {path: (fill or {}).get(path, 0) for path in absent}
        parts = [
            FilledSource(source, spec, {path: values[path] for path in lacking.get(name, ())}, name)
            for name, source in sources.items()
        ]
        return convert(MergedSource(parts, list(sources)), out, format=format, **options)


def union_of(specs: Mapping[str, Spec]) -> tuple[Spec, dict[str, list[str]]]:
    """Return the columns of all datasets, and the columns that each lacks."""
    fields: dict[str, Field] = {}
    owner: dict[str, str] = {}
    for name, spec in specs.items():
        for path, field in spec.items():
            known = fields.setdefault(path, field)
            owner.setdefault(path, name)
            if known != field:
                raise SpecError(f"expected {path} as in {owner[path]}, {known}, got {field} in {name}; convert one")
    every = list(specs.values())
    spaces = [
        getattr(every[0], name) if all(getattr(spec, name) == getattr(every[0], name) for spec in every) else None
        for name in ("observation_space", "action_space")
    ]
    lacking = {name: [path for path in fields if path not in spec] for name, spec in specs.items()}
    return Spec(fields, *spaces), {name: paths for name, paths in lacking.items() if paths}


def merged_statistics(parts: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the statistics of several datasets together: count, extremes, mean and standard deviation."""
    if not parts or not all(is_mapping(part) for part in parts):
        return {}
    statistics: dict[str, dict[str, Any]] = {}
    for path in parts[0]:
        entries = [part.get(path) for part in parts]
        if not all(is_mapping(entry) and all(name in entry for name in FIGURES) for entry in entries):
            continue
        figures = [{name: np.asarray(entry[name], np.float64) for name in FIGURES} for entry in entries]
        if any(each["count"].size != 1 for each in figures) or len({each["mean"].shape for each in figures}) > 1:
            continue
        filled = [each for each in figures if each["count"].item() > 0]
        if not filled:
            continue
        merged = reduce(merged_figures, filled)
        statistics[path] = {name: merged[name].tolist() for name in FIGURES[1:]}
        statistics[path]["count"] = [int(merged["count"].item())]
    return statistics


def _source(given: Any, opened: ExitStack) -> Source:
    if isinstance(given, EpisodeDataset):
        if len(given) != len(given.source):
            raise ArgumentError("expected datasets with all their episodes; convert the chosen ones first")
        return given.source
    return given if isinstance(given, Source) else opened.enter_context(open(given)).source
