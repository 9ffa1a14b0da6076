"""Every kind of finding is planted into clean data of every format, and found where the page says so, and only there.

`docs/reference/findings.json` lists the formats of each finding; the page "Findings" shows it. A plant that a format
cannot hold, or does not see, must not be on the page.
"""

# pyright: basic

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.spaces import Box
from penstock.doctor.examine import leaks
from penstock.errors import DamageWarning, FormatError, SpecError
from penstock.formats.base.account import Account, UnfinishedWork, unused_files
from penstock.formats.base.findings import finding_kinds
from penstock.formats.base.format import available
from penstock.formats.memory import MemorySource
from tests.doctor.damage import FILES, GENERAL, NAMES, SPECIAL
from tests.doctor.test_planted import ALSO, PLANTS, Values, clean, source_of
from tests.packages import modules_of_packages

PAGE: dict[str, list[str]] = json.loads((Path(__file__).parents[2] / "docs/reference/findings.json").read_text())
# Findings that follow from a plant in one format, next to those of `ALSO`.
FOLLOWS = {
    ("lerobot", "outside-space"): {"action-jump"},
    ("tables", "outside-space"): {"action-jump"},
    ("demos", "outside-space"): {"action-jump"},
}
for module in modules_of_packages("doctor_cases"):
    NAMES |= module.NAMES
    SPECIAL |= module.SPECIAL
    FILES |= module.FILES
    FOLLOWS |= module.FOLLOWS


def names(path: Path, *, deep: bool = True) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamageWarning)  # a check lists what opening warns of
        report = penstock.check(path, deep=deep, threads=0, progress=False)
    return {finding.name for finding in report.findings}


def stored(format: str, episodes: list[Values], folder: Path, **options: Any) -> Path:
    """The episodes as files of a format, with what it can hold of them."""
    folder.mkdir(parents=True)
    path = folder / NAMES[format]
    if format in SPECIAL:
        SPECIAL[format](path, episodes)
    else:
        written = {**GENERAL[format], **options}
        penstock.convert(source_of(episodes), path, format=format, options=written, certificate=False)
    return path


def values_found(format: str, folder: Path) -> set[str]:
    """Which findings of values are found in files of a format, each planted alone."""
    assert names(stored(format, clean(), folder / "clean")) == set()
    found: set[str] = set()
    for name, (plant, _) in PLANTS.items():
        try:
            path = stored(format, plant(clean()), folder / name)
        except (penstock.errors.DataError, SpecError):
            continue  # the format does not hold it
        seen = names(path)
        assert seen - ALSO.get(name, set()) - FOLLOWS.get((format, name), set()) <= {name}, name
        found |= seen & {name}
        shutil.rmtree(folder / name)
    return found


def damage_found(format: str, folder: Path) -> set[str]:
    """Which findings about files, metadata and rules of a format are found, each planted alone."""
    found: set[str] = set()
    for i, (make, name, plant) in enumerate(FILES.get(format, ())):
        (folder / str(i)).mkdir(parents=True)
        path = make(folder / str(i) / NAMES[format])
        assert name not in names(path)
        plant(path)
        assert name in names(path), (name, i)
        found.add(name)
    return found


def with_metadata(name: str, *, wrong: bool) -> tuple[penstock.Spec, dict[str, Any], dict[str, Any]]:
    """Spec, metadata of the dataset and of its episode, which has rewards 0, 1, 2 and 3."""
    flag = penstock.Field(np.dtype("?"))
    fields = {
        "observations": penstock.Field(np.dtype("f4"), (1,), "boundary"),
        "actions": penstock.Field(np.dtype("f4"), (1,)),
        "rewards": penstock.Field(np.dtype("f8")),
        "terminations": flag,
        "truncations": flag,
    }
    space = Box(np.full(1, -9.0), np.full(1, 9.0), np.dtype("f8" if name == "narrow-dtype" and wrong else "f4"))
    figures = {"min": [0.0], "max": [3.0 + 4 * wrong], "mean": [1.5], "count": [4]}
    metadata = {"statistics": {"rewards": figures}} if name == "wrong-statistics" else {}
    entries = {"total_reward": 6.0 + wrong} if name == "wrong-return" else {}
    return penstock.Spec(fields, action_space=space), metadata, entries


def metadata_found(format: str, folder: Path) -> set[str]:
    """Which findings about spaces and metadata are found, and that a writer without episodes leaves one."""
    found: set[str] = set()
    for name in ("wrong-return", "wrong-statistics", "narrow-dtype", "no-episodes") if format in GENERAL else ():
        for wrong in (False, True):
            spec, metadata, entries = with_metadata(name, wrong=wrong)
            path = folder / f"{name} {wrong}" / NAMES[format]
            path.parent.mkdir(parents=True)
            ends = np.arange(4) == 3
            rows = np.arange(5, dtype="f4")[:, None]
            columns = dict(zip(spec, (rows, rows[:4], np.arange(4.0), ends, ends & False), strict=True))
            source = MemorySource.from_episodes([penstock.Episode(spec, columns, 0, entries)], metadata)
            data = penstock.EpisodeDataset(source)
            data = data[[]] if name == "no-episodes" and wrong else data
            how = {"format": format, "options": GENERAL[format], "certificate": False, "allow_empty": True}
            try:
                penstock.convert(data, path, **how)
            except penstock.errors.DataError:
                assert name == "no-episodes"  # which this format cannot hold
                continue
            seen = names(path) & {name}
            assert wrong or not seen, name
            found |= seen
    return found


def of_all_formats(format: str, folder: Path) -> set[str]:
    """Findings that do not depend on columns: a part that was not read, a writer that stopped, leaks."""
    found: set[str] = set()
    first, second = (stored(format, clean(seed), folder / str(seed)) for seed in (0, 1))
    copies = [penstock.check(path, deep=True, progress=False) for path in (first, second, first)]
    assert not list(leaks({"a": copies[0], "b": copies[1]}))
    found |= {finding.name for _, finding in leaks({"a": copies[0], "b": copies[2]})}
    found |= names(first, deep=False) & {"partial"}
    UnfinishedWork("conversion", 9).begin(first)
    return found | (names(first) & {"unfinished"})


@pytest.mark.parametrize("format", [name for name in available() if name in NAMES])
def test_what_is_planted_into_a_format_is_found_as_the_page_says(format: str, tmp_path: Path) -> None:
    found = values_found(format, tmp_path / "values")
    found |= metadata_found(format, tmp_path / "metadata")
    found |= damage_found(format, tmp_path / "damage")
    found |= of_all_formats(format, tmp_path / "all")
    assert sorted(found) == sorted(name for name, formats in PAGE.items() if format in formats)


def test_the_page_lists_every_kind_of_finding_and_every_format() -> None:
    page = {name: available().keys() & formats for name, formats in PAGE.items()}
    kinds = list(finding_kinds())
    assert [name for name in PAGE if name in kinds] == kinds
    assert all(PAGE[name] and not page[name] for name in PAGE.keys() - kinds)  # only formats that are not installed
    elsewhere = ["skipped", "filler", "caution"]  # an option of `open`; layouts that mappings read
    assert [name for name, formats in PAGE.items() if not formats] == elsewhere
    sets = {"argoverse2", "nuplan", "py123d", "waymo"}  # read-only: `tests/sets` of penstock-driving plants into them
    assert {name for formats in page.values() for name in formats} - sets == NAMES.keys()
    # Read by the classes of `demos`; files of other formats by a mapping; a column store.
    others = {"native", "mapping", "lc0-archive"}
    assert available().keys() - others - sets == NAMES.keys()


@pytest.mark.parametrize("part", ["left_out", "used", "ends"])
@pytest.mark.parametrize("value", [None, 3, "text", [3], {"a": 1}])
def test_an_account_of_other_types_is_refused(part: str, value: object) -> None:
    entries = Account(tuple(unused_files(["notes.txt"], "a dataset")), {"a": "b"}).to_json()
    assert Account.from_json(entries).to_json() == entries
    if (part, type(value)) not in {("used", dict), ("ends", str)}:
        with pytest.raises(FormatError, match="expected an account, got"):
            Account.from_json(entries | {part: value})
    with pytest.raises(FormatError, match="expected an account, got"):
        Account.from_json({name: each for name, each in entries.items() if name != part})
