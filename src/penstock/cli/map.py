"""`penstock map`: change every episode of a dataset by a function of yours, and write a new dataset."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.chosen import chosen_dataset
from penstock.cli.convert import (
    Curation,
    Drop,
    FillMissing,
    NewDataset,
    Out,
    Overwrite,
    Rename,
    WithCertificate,
    WriterOption,
    write_new,
)
from penstock.cli.jobs import WorkOptions, works_in_parts
from penstock.cli.options import Episodes, From, In, NewFormat, Opening, Storage, Where, opened, pairs, storage_options
from penstock.cli.show import Json

Function = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="A function of an episode, or a class or function without arguments that is called once to make one. "
        "Imported from the working folder too.",
    ),
]
Column = Annotated[
    str | None, typer.Option("--column", metavar="NAME", help="The column that the function returns, for it alone.")
]
AlignOption = Annotated[
    list[str] | None,
    typer.Option(
        "--align", metavar="[NAME=]ALIGN", help="step, boundary or episode, of all returned columns or of one."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the argument rng of the function.")]
Version = Annotated[str | None, typer.Option("--version", help="Text that replaces the digest of the function's code.")]


@works_in_parts
def map_episodes(
    location: In,
    function: Function,
    out: Out,
    column: Column = None,
    align: AlignOption = None,
    seed: Seed = 0,
    version: Version = None,
    format: NewFormat = None,
    option: WriterOption = None,
    source: From = None,
    opening: Opening = None,
    episodes: Episodes = None,
    where: Where = None,
    curation: Curation = None,
    drop: Drop = None,
    rename: Rename = None,
    fill_missing: FillMissing = False,
    overwrite: Overwrite = False,
    certificate: WithCertificate = True,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Change every episode by a function of yours, and write a new dataset.

    The function returns columns to add or replace, True to keep an episode as it is, or None or False to leave it out.
    After an interruption, run the same command again: it continues where it stopped.

    Example: penstock map ./robot embed:Embed ./robot-embedded --column embedding --jobs 4
    """
    read_options, write_options = storage_options(storage, location, out)
    dataset = chosen_dataset(location, opening, source, read_options, episodes, where, curation=curation)
    renamed = {key: str(value) for key, value in pairs(rename, "--rename").items()}
    rules: dict[str, Any] = {"drop": drop or [], "rename": renamed, "fill_missing": fill_missing}
    rules |= {"certificate": certificate, "require": None}
    target = NewDataset(out, format, pairs(option, "--option"), write_options, rules, overwrite)
    entries: dict[str, Any] = {
        "function": function,
        "folder": os.fspath(Path.cwd()),
        "column": column,
        "align": _aligns(align),
    }
    entries |= {"seed": seed, "version": version}
    open_source = partial(opened, location, opening, source, read_options)
    write_new(dataset, open_source, target, work, as_json=as_json, function=entries)


def _aligns(given: list[str] | None) -> Any:
    """The alignment of all columns, or of some by name."""
    if given is not None and len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs(given, "--align") or None
